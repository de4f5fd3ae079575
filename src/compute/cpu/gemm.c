/* gemm.c - the training step's matrix products, through oneDNN (it picks kernels for the machine). Not for inference: oneDNN may take another
 * algorithm for another row count. */
#include "compute/cpu/cpu.h"

#include <oneapi/dnnl/dnnl.h>

void cpu_gemm(struct compute *c, const struct gemm_params *p) {
  (void)c;
  if (p->m == 0 || p->n == 0 || (p->k == 0 && p->beta == 1.0f)) return;
  int64_t lda = p->lda ? p->lda : (p->transpose_a ? p->m : p->k);
  int64_t ldb = p->ldb ? p->ldb : (p->transpose_b ? p->k : p->n);
  int64_t ldc = p->ldc ? p->ldc : p->n;
  dnnl_status_t status = dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', p->m, p->n, p->k, p->alpha, p->a, lda, p->b, ldb,
                                    p->beta, p->c, ldc);
  ASSERT(status == dnnl_success); /* it fails only on shapes that make no sense */
}
