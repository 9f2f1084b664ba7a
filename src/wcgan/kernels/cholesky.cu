// Covariances (batch, d, d) -> W = L^-1 with L L^T = (1 - eps) ((1 - delta) S + delta (tr S / d) I) + eps I, in float32.
//
// A cluster of C thread blocks factorises one matrix. Rows of 32 x 32 tiles are shared out among the blocks and stay in
// their shared memory. Step k eliminates tile column k: with [A | I] reduced in place to [L | W], tile row i > k becomes
//     row_i -= L_ik [W_k0 ... W_kk | L_(k+1)k^T ... L_ik^T],
// a product of 32 x 32 with 32 x 32 (i + 1). There are two cluster barriers a step, and the next diagonal tile is
// factorised by half a block's warps while the others finish the step. Code is kept short: it is run once, so that long
// unrolled code would wait for its own instructions.
#define T 32
#define S 40  // stride of tiles that stand alone: 8 more than a multiple of 32, so that fragments meet no bank twice
#define J 36  // stride of the columns in invert_tile
#define THREADS 256
#define WARPS (THREADS / 32)
#define ALL 0xffffffffu
#ifdef PROFILE
#define MARK(n) if (tid == 0 && matrix == 0) profile[(k * 8 + n) * C + rank] = clock64();
#else
#define MARK(n)
#endif

__device__ __forceinline__ unsigned block_rank() {
    unsigned r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Writes four floats to the same place in another block's shared memory.
__device__ __forceinline__ void push(const float* place, unsigned rank, float4 v) {
    unsigned local = (unsigned)__cvta_generic_to_shared(place), remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "r"(remote), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

// Tile rows of a block: its rank, and from the other end where there are more rows than blocks.
__device__ __forceinline__ int row_of(int rank, int slot) { return slot ? 2 * C - 1 - rank : rank; }
__device__ __forceinline__ int owner(int row) { return row < C ? row : 2 * C - 1 - row; }
__device__ __forceinline__ bool has_row_after(int rank, int row, int tiles) {
    return (rank > row && rank < tiles) || (2 * C - 1 - rank > row && 2 * C - 1 - rank < tiles);
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

// A float32 number as the sum of two tf32 numbers.
__device__ __forceinline__ void split(float x, unsigned& high, unsigned& low) {
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high) : "f"(x));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(low) : "f"(x - __uint_as_float(high)));
}

__device__ __forceinline__ void multiply(float sum[4], const unsigned a[4], const unsigned b[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// One warp: sum_t left[t][r] right[t][c] over 16 M rows and 8 N columns, as three tf32 products for each of float32.
// A lane has rows lane / 4 and 8 more, and columns 2 (lane % 4) and 1 more, of each 16 x 8.
template <int M, int N>
__device__ __forceinline__ void product(
    const float* left, int left_stride, const float* right, int right_t, int right_c, float sum[M][N][4]) {
    int lane = threadIdx.x & 31, g = lane >> 2, h = lane & 3;
    float spare[2][4] = {};  // of the small terms, where there is one sum only
#pragma unroll
    for (int t = 0; t < T; t += 8) {
        unsigned a[M][4], a_low[M][4], b[N][2], b_low[N][2];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int q = 0; q < 4; q++)
                split(left[(t + h + (q >> 1) * 4) * left_stride + m * 16 + g + (q & 1) * 8], a[m][q], a_low[m][q]);
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

extern "C" __global__ void __cluster_dims__(C, 1, 1) __launch_bounds__(THREADS, 1)
factorise(const float* __restrict__ covariance, float* __restrict__ whitening, float* __restrict__ retry, int d, float eps
#ifdef PROFILE
          , long long* profile
#endif
) {
    extern __shared__ float4 memory[];
    const int tiles = (d + T - 1) / T, width = (tiles + tiles % 2) * T, stride = width + 8;
    const int rank = block_rank(), matrix = blockIdx.x / C, tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int slots = tiles > C ? 2 : 1, g = lane >> 2, h = (lane & 3) * 2;
    const float levels[4] = LEVELS;
    float* rows = (float*)memory;                   // (slots, 32, stride)
    float* shared_row = rows + slots * T * stride;  // (32, stride): [W_k0 ... W_kk | L_(k+1)k^T ...]
    float* left = shared_row + T * stride;          // (slots, 32, S): L_ik^T
    float* diagonal = left + slots * T * S;         // (2, 32, S): transposed inverse of L_kk, of this step and the next
    float* flag = diagonal + 2 * T * S;             // (2, 4): whether the factorisation failed
    float* columns = flag + 8;                      // (2, 8, J), for invert_tile
    covariance += (size_t)matrix * d * d;
    whitening += (size_t)matrix * d * d;

    float trace = 0.0f;
    for (int i = tid; i < d; i += THREADS) trace += covariance[(size_t)i * d + i];
    for (int offset = 16; offset; offset /= 2) trace += __shfl_xor_sync(ALL, trace, offset);
    if (lane == 0) columns[warp] = trace;
    __syncthreads();
    trace = 0.0f;
    for (int w = 0; w < WARPS; w++) trace += columns[w];

    bool failed = true;
    int attempt = -1;
    while (failed && ++attempt < 4) {
        const float delta = levels[attempt];
        for (int slot = 0; slot < slots; slot++) {
            int row = row_of(rank, slot);
            if (row >= tiles) continue;
            for (int r = warp; r < T; r += WARPS) {
                int i = row * T + r;
                for (int c = lane; c < (row + 1) * T; c += 32) {
                    float v = i == c ? 1.0f : 0.0f;
                    if (i < d && c < d) {
                        v = 0.5f * (covariance[(size_t)i * d + c] + covariance[(size_t)c * d + i]);
                        v = (1.0f - eps) * ((1.0f - delta) * v + (i == c ? delta * (trace / d) : 0.0f)) + (i == c ? eps : 0.0f);
                    }
                    rows[(slot * T + r) * stride + c] = v;
                }
            }
        }
        cluster_barrier();  // nobody still reads what the last attempt left
        failed = false;

        // At the top of step k, step k - 1 is still to be subtracted from the rows.
#pragma unroll 1
        for (int k = 0; k <= tiles; k++) {
            float* inverse = diagonal + (k & 1) * T * S;
            float* failure = flag + (k & 1) * 4;
            const bool mine = k < tiles && rank == owner(k);
            MARK(0)
            if (mine) {  // the diagonal tile first, and its inverse by four warps
                int slot = k < C ? 0 : 1;
                float* tile = rows + slot * T * stride + k * T;
                if (k > 0) {
                    const float* l = left + slot * T * S;
                    int r = (warp & 1) * 16, c = (warp >> 1) * 8;
                    float sum[1][1][4] = {};
                    product<1, 1>(l + r, S, l + c, S, 1, sum);
#pragma unroll
                    for (int q = 0; q < 4; q++) tile[(r + g + (q >> 1) * 8) * stride + c + h + (q & 1)] -= sum[0][0][q];
                }
                __syncthreads();
                MARK(1)
                if (warp < 4) invert_tile(tile, stride, inverse, columns, failure);
                MARK(2)
            }
            if (k > 0 && (!mine || warp >= 4)) {
                int first = mine ? 4 : 0, number = WARPS - first;
                for (int slot = 0; slot < slots; slot++) {
                    int i = row_of(rank, slot);
                    if (i < k || i >= tiles) continue;
                    int end = i == k ? i : i + 1;  // the diagonal tile is done
                    for (int pair = warp - first; pair * 2 < end; pair += number) {
                        float sum[2][8][4] = {};
                        product<2, 8>(left + slot * T * S, S, shared_row + pair * 2 * T, stride, 1, sum);
#pragma unroll
                        for (int n = 0; n < 8; n++) {
                            int column = pair * 2 * T + n * 8, j = column / T;
                            if (j >= end) continue;
#pragma unroll
                            for (int q = 0; q < 4; q++) {
                                float2* place = (float2*)(rows + (slot * T + g + q * 8) * stride + column + h);
                                float2 old = j == k - 1 ? float2{0.0f, 0.0f} : *place;
                                const float* s = sum[q >> 1][n] + (q & 1) * 2;
                                *place = {old.x - s[0], old.y - s[1]};
                            }
                        }
                    }
                }
                if (rank == owner(k - 1))  // row k - 1 of W is final
                    for (int r = warp - first; r < T && (k - 1) * T + r < d; r += number)
                        for (int c = lane; c < d; c += 32)
                            whitening[(size_t)((k - 1) * T + r) * d + c] = c < k * T ? shared_row[r * stride + c] : 0.0f;
            }
            MARK(3)
            if (k == tiles) break;
            if (mine) {
                __syncthreads();
                for (int other = 0; other < C; other++) {
                    if (other == rank) continue;
                    if (tid == 0) push(failure, other, *(float4*)failure);
                    if (has_row_after(other, k, tiles))
                        for (int e = tid * 4; e < T * S; e += THREADS * 4) push(inverse + e, other, *(float4*)(inverse + e));
                }
            }
            MARK(4)
            cluster_barrier();
            MARK(5)
            failed = *failure != 0.0f;
            if (failed) break;

            // L_ik = A_ik L_kk^-T of the own rows, and W_kj = L_kk^-1 R_kj, to whoever needs them.
            for (int slot = 0; slot < slots; slot++) {
                int i = row_of(rank, slot);
                if (i <= k || i >= tiles) continue;
                int t = (warp & 1) * 16, r = (warp >> 1) * 8;
                float sum[1][1][4] = {};
                product<1, 1>(inverse + t, S, rows + (slot * T + r) * stride + k * T, 1, stride, sum);
                float* place = left + (slot * T + t + g) * S + r + h;
                *(float2*)place = {sum[0][0][0], sum[0][0][1]};
                *(float2*)(place + 8 * S) = {sum[0][0][2], sum[0][0][3]};
            }
            __syncthreads();
            for (int slot = 0; slot < slots; slot++) {
                int i = row_of(rank, slot);
                if (i <= k || i >= tiles) continue;
                float4 v = *(float4*)(left + (slot * T + (tid >> 3)) * S + (tid & 7) * 4);
                float* place = shared_row + (tid >> 3) * stride + i * T + (tid & 7) * 4;
                *(float4*)place = v;
                for (int other = 0; other < C; other++)
                    if (other != rank && has_row_after(other, i, tiles)) push(place, other, v);
            }
            for (int e = tid; e < T * T; e += THREADS)
                shared_row[(e >> 5) * stride + k * T + (e & 31)] = inverse[(e & 31) * S + (e >> 5)];
            if (mine) {
                const float* row = rows + (k < C ? 0 : 1) * T * stride;
                for (int pair = warp; pair * 2 < k; pair += WARPS) {
                    float sum[2][8][4] = {};
                    product<2, 8>(inverse, S, row + pair * 2 * T, stride, 1, sum);
#pragma unroll
                    for (int n = 0; n < 8; n++) {
                        int column = pair * 2 * T + n * 8;
                        if (column / T >= k) continue;
#pragma unroll
                        for (int q = 0; q < 4; q++) {
                            const float* s = sum[q >> 1][n] + (q & 1) * 2;
                            *(float2*)(shared_row + (g + q * 8) * stride + column + h) = {s[0], s[1]};
                        }
                    }
                }
                __syncthreads();
                for (int e = tid; e < T * k * 8; e += THREADS) {
                    float* place = shared_row + (e / (k * 8)) * stride + (e % (k * 8)) * 4;
                    float4 v = *(float4*)place;
                    for (int other = 0; other < C; other++)
                        if (other != rank && has_row_after(other, k, tiles)) push(place, other, v);
                }
            }
            MARK(6)
            cluster_barrier();
            MARK(7)
        }
    }
    if (failed) {
        for (int e = rank * THREADS + tid; e < d * d; e += C * THREADS) whitening[e] = __int_as_float(0x7fc00000);
        attempt = 0;
    }
    if (rank == 0 && tid == 0) retry[matrix] = levels[attempt];
    cluster_barrier();  // no block may leave while another can still write to it
}
