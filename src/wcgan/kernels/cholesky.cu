// Covariances (batch, d, d) -> W = L^-1 with L L^T = (1 - eps) ((1 - delta) S + delta (tr S / d) I) + eps I, in float32;
// with I in place of (tr S / d) I where the trace is 0.
//
// A cluster of C thread blocks factorises one matrix; each holds one row of 32 x 32 tiles in its shared memory. Step k
// eliminates tile column k, with [A | I] reduced in place to [L | R], where W_k = L_kk^-1 R_k:
//     L_ik = A_ik L_kk^-T,    A_ij -= L_ik L_jk^T  (k < j <= i),    R_ij -= (L_ik L_kk^-1) R_kj  (j < k),
//     R_ik = -L_ik L_kk^-1.
// Every block keeps a copy of the diagonal tiles above its own and inverts each itself, so that a step needs no more than
// the tiles L_jk^T and R_kj from other blocks and one barrier. Four warps invert; the others subtract the step before.
// Code is kept short: each part of it is run once a step, and would wait for its own instructions if it were unrolled.
//
// If `wanted` points to a 0, nothing is done.
// Defined before: C, LEVELS (shrinkages of four attempts), BUFFERS (2, or 1 where memory is short: one more barrier).
#define T 32
#define S 40  // stride of tiles that stand alone: 8 more than a multiple of 32, so that fragments meet no bank twice
#define J 36  // stride of the columns in invert_tile
#define THREADS 512
#define WARPS (THREADS / 32)
#define INVERTERS 4
#define ALL 0xffffffffu

__device__ __forceinline__ unsigned block_rank() {
    unsigned r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void helpers_barrier() {
    asm volatile("bar.sync 2, %0;" :: "n"(THREADS - 32 * INVERTERS) : "memory");
}

// Writes four floats to the same place in another block's shared memory.
__device__ __forceinline__ void push(const float* place, unsigned rank, float4 v) {
    unsigned local = (unsigned)__cvta_generic_to_shared(place), remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "r"(remote), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

// Four warps, eight columns each: the lower triangle of a tile -> the inverse of its Cholesky factor, transposed.
// `columns` is room for (2, 8, J) floats: the current eight columns of L, and at [32] the scale of each.
__device__ __forceinline__ void invert_tile(const float* tile, int stride, float* inverse, float* columns, float* failed) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float a[8];
    *(float4*)a = *(const float4*)(tile + lane * stride + warp * 8);
    *(float4*)(a + 4) = *(const float4*)(tile + lane * stride + warp * 8 + 4);
#pragma unroll 1
    for (int panel = 0; panel < 4; panel++) {
        float* column = columns + (panel & 1) * 8 * J;
        if (warp == panel) {
            bool good = true;
#pragma unroll
            for (int q = 0; q < 8; q++) {
                int j = panel * 8 + q;
                float pivot = __shfl_sync(ALL, a[q], j);
                good = good && pivot > 0.0f && pivot < __int_as_float(0x7f800000);
                float scale;
                asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(scale) : "f"(pivot));
                float l = a[q] * scale;
                float below = lane > j ? l : 0.0f, u = below * scale;
                column[q * J + lane] = below;
                if (lane == 0) column[q * J + 32] = scale;
#pragma unroll
                for (int c = q + 1; c < 8; c++) a[c] -= below * __shfl_sync(ALL, l, panel * 8 + c);
#pragma unroll
                for (int c = 0; c < q; c++) {
                    a[c] -= u * __shfl_sync(ALL, a[c], j);
                    a[c] *= lane == j ? scale : 1.0f;
                }
                a[q] = lane > j ? -u : (lane == j ? scale : a[q]);
            }
            if (lane == 0 && (panel == 0 || !good)) *failed = good ? 0.0f : 1.0f;
        }
        asm volatile("bar.sync 1, 128;" ::: "memory");
        if (warp > panel) {
#pragma unroll
            for (int q = 0; q < 8; q++) {
                float l = column[q * J + lane], b[8];
                *(float4*)b = *(const float4*)(column + q * J + warp * 8);
                *(float4*)(b + 4) = *(const float4*)(column + q * J + warp * 8 + 4);
#pragma unroll
                for (int c = 0; c < 8; c++) a[c] -= l * b[c];
            }
        } else if (warp < panel) {
#pragma unroll
            for (int q = 0; q < 8; q++) {
                float scale = column[q * J + 32], u = column[q * J + lane] * scale;
                float mine = lane == panel * 8 + q ? scale : 1.0f;
#pragma unroll
                for (int c = 0; c < 8; c++) a[c] = (a[c] - u * __shfl_sync(ALL, a[c], panel * 8 + q)) * mine;
            }
        }
    }
#pragma unroll
    for (int c = 0; c < 8; c++) inverse[(warp * 8 + c) * S + lane] = warp * 8 + c <= lane ? a[c] : 0.0f;
}

// A float32 number as the sum of two of 11 bits each: right to about 2^-23. Tensor cores leave out the last 13 bits of
// what they read, so half of the last bit that they keep is added first: to the second number by a product, by which a
// NaN stays one. Of the first, the sum of integers makes of a NaN whose bits are all ones a zero.
__device__ __forceinline__ void split(float x, unsigned& high, unsigned& low) {
    high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint((x - __uint_as_float(high)) * (1.0f + 0.75f / 2048.0f));
}

__device__ __forceinline__ void multiply(float sum[4], const unsigned a[4], const unsigned b[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// One warp: sum_t left(t, r) right(t, c) over 16 M rows and 8 N columns, as three tf32 products for each of float32.
// A lane has rows lane / 4 and 8 more, and columns 2 (lane % 4) and 1 more, of each 16 x 8.
template <int M, int N>
__device__ __forceinline__ void product(
    const float* left, int left_t, int left_r, const float* right, int right_t, int right_c, float sum[M][N][4]) {
    int lane = threadIdx.x & 31, g = lane >> 2, h = lane & 3;
    float spare[2][4] = {};  // of the small terms, where there is one sum only
#pragma unroll 1
    for (int t = 0; t < T; t += 8) {
        unsigned a[M][4], a_low[M][4], b[N][2], b_low[N][2];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int q = 0; q < 4; q++)
                split(left[(t + h + (q >> 1) * 4) * left_t + (m * 16 + g + (q & 1) * 8) * left_r], a[m][q], a_low[m][q]);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int q = 0; q < 2; q++)
                split(right[(t + h + q * 4) * right_t + (n * 8 + g) * right_c], b[n][q], b_low[n][q]);
        // Products that go into the same sum stand apart: each waits for the one before.
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int m = 0; m < M; m++) multiply(M * N == 1 ? spare[0] : sum[m][n], a_low[m], b[n]);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int m = 0; m < M; m++) multiply(M * N == 1 ? spare[1] : sum[m][n], a[m], b_low[n]);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int m = 0; m < M; m++) multiply(sum[m][n], a[m], b[n]);
    }
    if (M * N == 1)
#pragma unroll
        for (int q = 0; q < 4; q++) sum[0][0][q] += spare[0][q] + spare[1][q];
}

// One warp: a tile minus sum_t left(t, r) right(t, c).
__device__ __forceinline__ void subtract_product(
    float* tile, int tile_stride, const float* left, int left_stride, const float* right, int right_stride) {
    int lane = threadIdx.x & 31, g = lane >> 2, h = (lane & 3) * 2;
    float sum[2][4][4] = {};
    product<2, 4>(left, left_stride, 1, right, right_stride, 1, sum);
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int q = 0; q < 4; q++) {
            float2* place = (float2*)(tile + (g + q * 8) * tile_stride + n * 8 + h);
            const float* s = sum[q >> 1][n] + (q & 1) * 2;
            *place = {place->x - s[0], place->y - s[1]};
        }
}

extern "C" __global__ void __cluster_dims__(C, 1, 1) __launch_bounds__(THREADS, 1)
factorise(const float* __restrict__ covariance, float* __restrict__ whitening, float* __restrict__ retry,
          const float* __restrict__ wanted, int d, float eps) {
    if (wanted != nullptr && *wanted == 0.0f) return;  // all blocks of a cluster do
    extern __shared__ float4 memory[];
    const int tiles = (d + T - 1) / T, stride = tiles * T + 8;
    const int rank = block_rank(), matrix = blockIdx.x / C, tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int g = lane >> 2, h = (lane & 3) * 2;
    const float levels[4] = LEVELS;
    float* row = (float*)memory;                    // (32, stride): the block's own row, [R_i0 ... | A_ik ... A_ii]
    float* received = row + T * stride;             // (BUFFERS, 32, stride): [R_k0 ... | - | L_(k+1)k^T ...] of a step
    float* inverses = received + BUFFERS * T * stride;  // (2, 32, S): transposed inverse of L_kk, of a step and the last
    float* pull = inverses + 2 * T * S;             // (32, S): (L_ik L_kk^-1)^T
    float* columns = pull + T * S;                  // (2, 8, J), for invert_tile
    float* flags = columns + 2 * 8 * J;             // (8,): a bad pivot here; the last block's word that there was one
    float* copies = flags + 8;                      // (rank, 32, S): diagonal tiles above the block's own
    covariance += (size_t)matrix * d * d;
    whitening += (size_t)matrix * d * d;

    float trace = 0.0f;
    for (int i = tid; i < d; i += THREADS) trace += covariance[(size_t)i * d + i];
    for (int offset = 16; offset; offset /= 2) trace += __shfl_xor_sync(ALL, trace, offset);
    if (lane == 0) columns[warp] = trace;
    __syncthreads();
    trace = 0.0f;
    for (int w = 0; w < WARPS; w++) trace += columns[w];
    const float level = trace > 0.0f ? trace / d : 1.0f;

    bool failed = true;
    int attempt = -1;
    while (failed && ++attempt < 4) {
        const float delta = levels[attempt];
        auto shrunk = [&](int i, int j) {  // beyond d the identity
            if (i >= d || j >= d) return i == j ? 1.0f : 0.0f;
            float v = 0.5f * (covariance[(size_t)i * d + j] + covariance[(size_t)j * d + i]);
            return (1.0f - eps) * ((1.0f - delta) * v + (i == j ? delta * level : 0.0f)) + (i == j ? eps : 0.0f);
        };
        for (int r = warp; r < T && rank < tiles; r += WARPS) {
            for (int c = lane; c < (rank + 1) * T; c += 32) row[r * stride + c] = shrunk(rank * T + r, c);
            for (int k = 0; k < rank; k++) copies[(k * T + r) * S + lane] = shrunk(k * T + r, k * T + lane);
        }
        __syncthreads();  // all have seen the flags of the last attempt
        if (tid < 8) flags[tid] = 0.0f;
        cluster_barrier();
        failed = false;

#pragma unroll 1
        for (int k = 0; k < tiles; k++) {
            float* now = received + (k % BUFFERS) * T * stride;
            const float* before = received + ((k + 1) % BUFFERS) * T * stride;  // of step k - 1, still to be subtracted
            float* inverse = inverses + (k & 1) * T * S;
            const float* last_inverse = inverses + (~k & 1) * T * S;
            const bool active = rank >= k && rank < tiles;
            if (active) {
                float* tile = rank == k ? row + k * T : copies + k * T * S;
                int tile_stride = rank == k ? stride : S;
                if (k > 0 && warp < 8) {
                    int r = (warp & 1) * 16, c = (warp >> 1) * 8;
                    float sum[1][1][4] = {};
                    product<1, 1>(before + k * T + r, stride, 1, before + k * T + c, stride, 1, sum);
#pragma unroll
                    for (int q = 0; q < 4; q++) tile[(r + g + (q >> 1) * 8) * tile_stride + c + h + (q & 1)] -= sum[0][0][q];
                }
                __syncthreads();
                if (warp < INVERTERS) {
                    invert_tile(tile, tile_stride, inverse, columns, flags);
                } else if (k > 0) {
                    const int helper = warp - INVERTERS, helpers = WARPS - INVERTERS;
                    const float* own = before + rank * T;  // L_i(k-1)^T
                    if (helper < 8) {
                        int t = (helper & 1) * 16, r = (helper >> 1) * 8;
                        float sum[1][1][4] = {};
                        product<1, 1>(last_inverse + t * S, 1, S, own + r, stride, 1, sum);
                        float* place = pull + (t + g) * S + r + h;
                        *(float2*)place = {sum[0][0][0], sum[0][0][1]};
                        *(float2*)(place + 8 * S) = {sum[0][0][2], sum[0][0][3]};
                    }
                    helpers_barrier();
                    for (int r = helper; r < T; r += helpers) row[r * stride + (k - 1) * T + lane] = -pull[lane * S + r];
                    int below = rank > k ? rank - k + 1 : 0, copied = rank > k ? rank - k - 1 : 0;
#pragma unroll 1
                    for (int u = helper; u < k - 1 + below + copied; u += helpers) {
                        int j = u < k - 1 ? u : u < k - 1 + below ? u + 1 : u - below + 2;  // tile column
                        bool copy = u >= k - 1 + below;
                        subtract_product(copy ? copies + j * T * S : row + j * T, copy ? S : stride,
                                         u < k - 1 ? pull : copy ? before + j * T : own, u < k - 1 ? S : stride,
                                         before + j * T, stride);
                    }
                    if (BUFFERS == 2 && rank == k) {
                        helpers_barrier();
                        for (int r = helper; r < T; r += helpers)
                            for (int c = lane * 4; c < k * T; c += 128)
                                for (int other = k + 1; other < tiles; other++)
                                    push(now + r * stride + c, other, *(float4*)(row + r * stride + c));
                    }
                }
                __syncthreads();
            }
            if (BUFFERS == 1) cluster_barrier();
            if (active && rank > k) {
                if (warp < 8) {
                    int t = (warp & 1) * 16, r = (warp >> 1) * 8;
                    float sum[1][1][4] = {};
                    product<1, 1>(inverse + t, S, 1, row + r * stride + k * T, 1, stride, sum);
                    float* place = now + (t + g) * stride + rank * T + r + h;
                    *(float2*)place = {sum[0][0][0], sum[0][0][1]};
                    *(float2*)(place + 8 * stride) = {sum[0][0][2], sum[0][0][3]};
                }
                __syncthreads();
                if (tid < T * T / 4) {
                    float* place = now + (tid >> 3) * stride + rank * T + (tid & 7) * 4;
                    for (int other = rank + 1; other < tiles; other++) push(place, other, *(float4*)place);
                }
            }
            if (BUFFERS == 1 && rank == k)
                for (int r = warp; r < T; r += WARPS)
                    for (int c = lane * 4; c < k * T; c += 128)
                        for (int other = k + 1; other < tiles; other++)
                            push(now + r * stride + c, other, *(float4*)(row + r * stride + c));
            if (rank == tiles - 1 && flags[0] != 0.0f && tid < C) push(flags + 4, tid, float4{1.0f, 0.0f, 0.0f, 0.0f});
            cluster_barrier();
            failed = flags[4] != 0.0f;
            if (failed) break;

            if (rank == k) {  // W_k = L_kk^-1 R_k is final
#pragma unroll 1
                for (int j = warp; j < k; j += WARPS) {
                    float sum[2][4][4] = {};
                    product<2, 4>(inverse, S, 1, row + j * T, stride, 1, sum);
#pragma unroll
                    for (int n = 0; n < 4; n++)
#pragma unroll
                        for (int q = 0; q < 4; q++) {
                            int i = k * T + g + q * 8, c = j * T + n * 8 + h;
                            const float* s = sum[q >> 1][n] + (q & 1) * 2;
                            if (i < d) whitening[(size_t)i * d + c] = s[0], whitening[(size_t)i * d + c + 1] = s[1];
                        }
                }
                for (int r = warp; r < T && k * T + r < d; r += WARPS)
                    for (int c = k * T + lane; c < d; c += 32)
                        whitening[(size_t)(k * T + r) * d + c] = c < (k + 1) * T ? inverse[(c - k * T) * S + r] : 0.0f;
            }
        }
    }
    if (failed) {
        for (int e = rank * THREADS + tid; e < d * d; e += C * THREADS) whitening[e] = __int_as_float(0x7fc00000);
        attempt = 0;
    }
    if (rank == 0 && tid == 0) retry[matrix] = levels[attempt];
    cluster_barrier();  // no block may leave while another can still write to it
}
