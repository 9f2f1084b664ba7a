"""What Triton makes of the kernels for a GPU with asynchronous products: no tile may be overwritten while one is read.

A loop copies the next tiles into shared memory while products of the last are still under way. Triton counts the
buffers that this takes wrongly for a tile that goes into registers too, and such a race shows on a GPU now and then
only. Here the kernels are compiled for one that need not be there, and the compiler's own text is read.
"""

import itertools
import re

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not installed")

import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from wcgan.functional._images import columns_of  # noqa: E402
from wcgan.kernels import blocks, images, programs  # noqa: E402
from wcgan.kernels.batch import cross_options, form_of_maps, map_options  # noqa: E402
from wcgan.kernels.jacobi import SWEEPS, jacobi_kernel  # noqa: E402
from wcgan.kernels.layer import TILE, product_tile  # noqa: E402

HOPPER, GEFORCE = GPUTarget("cuda", 90, 32), GPUTarget("cuda", 86, 32)
TYPES = {"bfloat16": "*bf16", "float16": "*fp16", "float32": "*fp32"}
SLOWER = [("float16", "half"), ("float32", "hopper tf32"), ("float32", "hopper float32")]
PRECISIONS = [("bfloat16", "half"), *(pytest.param(*other, marks=pytest.mark.slow) for other in SLOWER)]
# The paper's generators: 128 or 256 channels, of 4x4 to 32x32; sub-batches have a slot each, whose length decides too.
LAUNCHED = [(256, None), *((256, side**2) for side in (4, 8, 32))]
OTHERS = [(d, length) for d in (16, 32, 64, 128) for length in (None, 16, 32, 64, 256) if (d, length) not in LAUNCHED]


def launch_options(tiles):
    """Those of the options that are not constants of the kernel, which are left."""
    tiles.pop("programs", None)
    return {key: tiles.pop(key) for key in ("num_warps", "num_stages", "maxnreg") if key in tiles}


def compile_for(target, kernel, types, constants, **options):
    """A compiled kernel, of which integers and pointers are multiples of 16."""
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in names}
    places = {name: (place,) for place, name in enumerate(names)}
    divisible = {places[name]: [["tt.divisibility", 16]] for name in names if name not in (*constants, "splits")}
    values = {places[name]: value for name, value in constants.items()}
    source = ASTSource(kernel, signature, constexprs=values, attrs=divisible)
    return triton.compile(source, target=target, options=options | {"enable_fp_fusion": True})


def races(compiled):
    """Tiles that registers read beside products that the loop does not wait for: they may be overwritten too early."""
    origin, loaded, multiplied, text = {}, set(), set(), compiled.asm["ttgir"]
    if not re.search(r"warp_group_dot_wait .*pendings = [1-9]", text):
        return set()
    for line in text.splitlines():
        if found := re.search(r"(%\w+) = ttg\.memdesc_(?:index|trans) (%\w+)", line):
            origin[found[1]] = origin.get(found[2], found[2])
        elif found := re.search(r"ttg\.local_load (%\w+)", line):
            loaded.add(origin.get(found[1], found[1]))
        elif found := re.search(r"warp_group_dot (%\w+), (%\w+),.*isAsync = true", line):
            multiplied |= {origin.get(name, name) for name in found.groups()}
    assert multiplied, "the products are not asynchronous, or the compiler writes them in another way"
    return loaded & multiplied


@triton.jit
def racing_kernel(x, out, sums, count, P: tl.constexpr):  # noqa: N803
    columns = tl.arange(0, 128)
    total, column = tl.zeros((128, 128), tl.float32), tl.zeros((P, 128), tl.float32)
    for start in range(0, count, P):
        rows = x + (start + tl.arange(0, P))[:, None] * 128
        a = tl.load(rows + columns[None, :])
        b = tl.load(rows + 4096 + columns[None, :])
        column += a.to(tl.float32)
        total = tl.dot(tl.trans(a), b, total)
    tl.store(out + columns[:, None] * 128 + columns[None, :], total)
    tl.store(sums + columns, tl.sum(column, 0))


def test_a_tile_that_goes_into_registers_too_is_found():
    types = {"x": "*bf16", "out": "*fp32", "sums": "*fp32"}
    assert len(races(compile_for(HOPPER, racing_kernel, types, {"P": 64}, num_warps=4, num_stages=4))) == 1


def compile_sums(target, kind, d, name, precision, **changed):
    """`cross_kernel` for d channels of a type, as it is launched but for changed options."""
    grouped, symmetric = kind == "products of classes", kind == "moments"
    centred = name != "bfloat16"
    types = {"z": TYPES[name], "x": TYPES[name], "products": "*fp32", "sums": "*fp32"}
    types |= {"centre": "*fp32"} if centred else {}
    types |= {"order": "*i32", "bounds": "*i32"} if grouped else {}
    flags = {"SYMMETRIC": symmetric, "CENTRED": centred, "GROUPED": grouped, "FLAT": not grouped}
    absent = {key: None for key in ("centre", "order", "bounds") if key not in types}
    tiles = cross_options(d, precision)
    options = launch_options(tiles) | changed
    constants = {**flags, **absent, **tiles, "zd": 1, "xd": 1}
    return compile_for(target, programs.cross_kernel, types, constants, **options)


def compile_map(target, kind, d, length, name, precision, **changed):
    """`map_kernel` for d channels of a type, as it is launched but for changed options."""
    forward, slotted = kind == "forward", length is not None
    mean = "pulls" if name == "bfloat16" else "mean"  # subtracted after the product, or before it
    first = {"forward": mean, "gradient": "pulls", "gradient with an offset": None}[kind]
    means = {f"{mean}2", *([] if first is None else [f"{first}1"])}
    form, _ = form_of_maps(getattr(torch, name), precision)
    types = dict.fromkeys(("out", "x1", "x2"), TYPES[name]) | dict.fromkeys(means, "*fp32")
    types |= dict.fromkeys(("m1", "m2"), TYPES[str(form).removeprefix("torch.")])
    types |= {} if kind == "gradient" else {"offset": "*fp32"}
    types |= {"scales": "*fp32"} if name == "float16" and not forward else {}
    flags = {"TERMS": 1 if forward else 2, "OFFSET": "offset" in types, "RELU": forward}
    flags |= {
        f"{flag}{n}": f"{key}{n}" in types for flag, key in (("CENTRED", "mean"), ("PULLED", "pulls")) for n in "12"
    }
    flags |= {"SCALED": "scales" in types, "SLOTTED": slotted, "INDEXED": False, "FLAT": not slotted}
    given = ("offset", "mean1", "mean2", "pulls1", "pulls2", "scales", "index")
    absent = {key: None for key in given if key not in types}
    tiles = map_options(d, length, precision)
    options = launch_options(tiles) | changed
    constants = {**flags, **absent, **tiles, "od": 1, "ad": 1, "bd": 1}
    constants |= {} if slotted else {"offset_slots": 1, "slots1": 1, "slots2": 1}
    return compile_for(target, programs.map_kernel, types, constants, **options)


@pytest.mark.parametrize(("name", "precision"), PRECISIONS)
@pytest.mark.parametrize("d", [128, *(pytest.param(d, marks=pytest.mark.slow) for d in (16, 32, 64))])
@pytest.mark.parametrize("kind", ["moments", "products", "products of classes"])
def test_sums_of_products_race_with_nothing(kind, d, name, precision):
    assert not races(compile_sums(HOPPER, kind, d, name, precision))


def map_cases():
    """Sizes and kinds of maps: one kind for each size that is launched, and all for the largest, are quick."""
    kinds = ("forward", "gradient", "gradient with an offset")
    for (d, length), kind in itertools.product((*LAUNCHED, *OTHERS), kinds):
        place = LAUNCHED.index((d, length)) if (d, length) in LAUNCHED else None
        quick = place is not None and (length is None or kind == kinds[place % 3])
        yield pytest.param(d, length, kind, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("name", "precision"), PRECISIONS)
@pytest.mark.parametrize(("d", "length", "kind"), [*map_cases()])
def test_maps_race_with_nothing(d, length, kind, name, precision):
    assert not races(compile_map(HOPPER, kind, d, length, name, precision))


SMALL = 101_376  # bytes of shared memory of GeForce and workstation cards; stages are left out until a kernel fits


@pytest.mark.parametrize(
    ("precision", "kind"),
    [
        ("tf32", "products"),
        *(pytest.param("float32", kind, marks=pytest.mark.slow) for kind in ("moments", "products")),
        pytest.param("tf32", "moments", marks=pytest.mark.slow),
    ],
)
def test_two_stages_of_sums_fit_where_shared_memory_is_small(precision, kind):
    compiled = [compile_sums(GEFORCE, kind, 256, "float32", precision, num_stages=n) for n in (4, 2)]
    most, few = (each.metadata.shared for each in compiled)
    assert few <= SMALL < most


@pytest.mark.parametrize("precision", ["tf32", pytest.param("float32", marks=pytest.mark.slow)])
def test_a_map_fits_where_shared_memory_is_small(precision):
    assert compile_map(GEFORCE, "gradient", 256, None, "float32", precision).metadata.shared <= SMALL


@pytest.mark.parametrize("d", [256, 1024, 2048])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("groups", [None, "b", "out"])
def test_products_of_matrices_race_with_nothing(groups, mirrored, d):
    types = {"a": "*fp32", "b": "*fp32", "out": "*fp32", "factor": "fp32"}
    constants = {"MIRRORED": mirrored, "POISONED": False, "poison": None, "T": TILE, "K": 32, "aj": 1, "bj": 1}
    constants |= {"BLOCKS": groups == "b", "PRUNED": groups == "out", "N": product_tile(d, d)[0]}
    compiled = compile_for(HOPPER, programs.product_kernel, types, constants, num_warps=4)
    assert compiled.asm["ttgir"].count("tt.dot") == 3, "a float32 product is three of tf32"
    assert compiled.asm["ttgir"].count("arith.addf") == 1, "a long sum is not one of tensor cores"
    assert not races(compiled)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_what_whitening_in_groups_adds_compiles(name, alone):
    """Without asynchronous copies, so that nothing can race; Triton takes groups of one channel for a constant."""
    scaled, size = name == "float16", {"size": 1} if alone else {}
    sums, warps = {"B": 128, "S": 32}, {"num_warps": 4}
    arrays = ("products", "sums", "centre", "mean", "scatter")
    types = dict.fromkeys(arrays, "*fp32")
    constants = {"CENTRED": True, "BLOCKS": True, **sums, **size}
    compiled = [compile_for(HOPPER, programs.moments_kernel, types, constants, **warps)]
    types = {"blocks": "*fp32", "out": "*fp32"}
    compiled.append(compile_for(HOPPER, programs.diagonal_kernel, types, {"B": 1024, **size}, **warps))
    types = dict.fromkeys(("matrix", "mean", "retry", "pulls", "scales"), "*fp32") | {"rounded": TYPES[name]}
    types |= {"share": "fp32", "factor": "fp32"}
    absent = {"mean": None, "pulls": None} if scaled else {"scales": None}
    flags = {"SHIFTED": not scaled, "RETRIED": True, "SCALED": scaled, "PARTS": 1, "D": 16, "K": 128}
    compiled.append(compile_for(HOPPER, programs.fold_kernel, types, absent | flags | size | {"sj": 1}, **warps))
    arrays = ("mean", "second", "retry", "running_mean", "running_second")
    types = dict.fromkeys(arrays, "*fp32") | dict.fromkeys(("tracked", "retried", "nonfinite"), "*i64")
    flags = {"FULL": True, "POISONED": False, "TRACKED": True, "RETRIED": True, "D": 256, "poison": None}
    compiled.append(compile_for(HOPPER, programs.update_kernel, types | {"step": "fp32"}, flags | size, **warps))
    assert not any("async" in each.asm["ttgir"] for each in compiled)


@pytest.mark.parametrize("retry", [False, True])
def test_products_between_blocks_are_of_float64_numbers(retry):
    absent, options = {} if retry else {"wanted": None}, {"RETRY": retry, "T": blocks.TILE}
    types = {"work": "*fp64", "panel": "*fp64"} | dict.fromkeys(("inverse", "whitening", "flags", "block"), "*fp32")
    types |= {"wanted": "*fp32", "covariance": "*fp32", "reports": "*fp32"}
    for kernel in (blocks.panel_kernel, blocks.eliminate_kernel):
        constants = absent | options | {"K": blocks.INNER}
        compiled = compile_for(HOPPER, kernel, types, constants, num_warps=4, num_stages=3)
        (product,) = re.findall(r"tt\.dot .*", compiled.asm["ttgir"])
        assert re.search(r"-> tensor<64x64xf64", product)
        assert compiled.metadata.shared <= SMALL
    types |= dict.fromkeys(("eps", "level1", "level2", "level3"), "fp32")
    constants = absent | ({} if retry else {"reports": None}) | options | {"APART": blocks.APART, "MOST": 4, "K": 256}
    compile_for(HOPPER, blocks.start_kernel, types, constants, num_warps=4)


def test_the_choice_between_attempts_compiles():
    names = ("reports", "flags", "again_reports", "again_flags", "again", "whitening", "retry")
    types = dict.fromkeys(names, "*fp32") | dict.fromkeys(("level1", "level2", "level3"), "fp32")
    constants = {"APART": blocks.APART, "MOST": 4, "FLAGS": 1024, "B": blocks.COPIED}
    assert "f64" not in compile_for(HOPPER, blocks.finish_kernel, types, constants, num_warps=4).asm["ptx"]


@pytest.mark.parametrize("rows", [2, 32, pytest.param(16, marks=pytest.mark.slow)])
def test_the_kernel_of_eigenvalues_compiles_and_waits_for_nothing(rows):
    types = {"a": "*fp32", "values": "*fp32", "vectors": "*fp32"}
    text = compile_for(HOPPER, jacobi_kernel, types, {"P": rows, "SWEEPS": SWEEPS}, num_warps=1).asm["ttgir"]
    assert "tt.gather" in text
    assert "async" not in text


def compile_image_kernel(target, kind, flag, c=3, d=256, name="bfloat16", image="float32"):
    """A kernel of `images` for 32x32 pixels in channels-last memory, as it is launched; with a ReLU or its mask."""
    shape, strides, columns = torch.Size((192, c, 32, 32)), (1024 * c, 1, 32 * c, c), columns_of(c)
    launch = {
        "expand": lambda: images._expand_launcher(shape, strides, d, columns, flag, 132),
        "reduce": lambda: images._reduce_launchers(shape, strides, d, columns, flag, False)[0],
        "shift": lambda: images._reduce_launchers(shape, strides, d, columns, False, flag)[1],
        "outer": lambda: images._outer_launchers(shape, strides, d, columns, flag, 132)[0],
    }[kind]()
    types = dict.fromkeys(("matrix", "out", "features", "saved"), TYPES[name])
    types |= {"image": TYPES[image], "taps": "*fp32", "parts": "*fp32", "bias": "*fp32"}
    tiles = dict(launch.constants)
    options = launch_options(tiles)
    names = launch.kernel.arg_names
    numbers = dict(zip(names[len(names) - len(tiles) - len(launch.numbers) :], launch.numbers, strict=False))
    constants = {**tiles, **{key: 1 for key, number in numbers.items() if number == 1}}
    constants |= {key: None for key in ("saved", "bias") if key in names and not flag}
    types = {key: kind for key, kind in types.items() if key in names and key not in constants}
    return compile_for(target, launch.kernel, types, constants, **options)


OFTEN = [("expand", True, "float32"), ("reduce", True, "float32"), ("outer", True, "float32")]
SELDOM = [(kind, False, image) for kind in ("expand", "reduce", "outer") for image in ("float32", "bfloat16")]


@pytest.mark.parametrize(
    ("kind", "flag", "image"), [*OFTEN, *(pytest.param(*other, marks=pytest.mark.slow) for other in SELDOM)]
)
def test_convolutions_of_images_race_with_nothing_and_move_16_bytes_at_a_time(kind, flag, image):
    compiled = compile_image_kernel(HOPPER, kind, flag, image=image)
    assert not races(compiled)
    assert "warp_group_dot" in compiled.asm["ttgir"]
    features = {"expand": r"st\.global\.v4\.b32", "reduce": r"cp\.async\.cg[^;]* 0x10,"}
    features["outer"] = r"ld\.global\.v4\.b32" if flag else features["reduce"]
    assert re.search(features[kind], compiled.asm["ptx"])


@pytest.mark.slow
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("kind", ["expand", "reduce", "shift", "outer"])
@pytest.mark.parametrize("c", [1, 3, 4])
@pytest.mark.parametrize("d", [32, 128, 1024])
def test_convolutions_of_images_fit_where_shared_memory_is_small(d, c, kind, flag):
    assert compile_image_kernel(GEFORCE, kind, flag, c, d, "float16").metadata.shared <= 101_376
    assert not races(compile_image_kernel(HOPPER, kind, flag, c, d))
