// Memory for arrays that kernels make, as Numba's functions of these names give it, which are
// Python's.
#include <stdint.h>
#include <stdlib.h>
typedef struct { size_t references; void *destructor, *info, *data; size_t size; void *of; } Memory;
__attribute__((visibility("hidden"))) void *NRT_MemInfo_alloc_aligned(size_t size, uint32_t align)
{
    Memory *made = malloc(sizeof(Memory) + size + align);
    if (made) {
        uintptr_t start = (uintptr_t)(made + 1);
        *made = (Memory){1, 0, 0, (void *)(start + (align - start % align) % align), size, 0};
    }
    return made;
}
__attribute__((visibility("hidden"))) void NRT_MemInfo_call_dtor(void *made) { free(made); }
