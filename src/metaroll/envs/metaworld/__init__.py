"""Meta-World (extra ``metaworld``): benchmarks, tasks, environments and their task sampler (specs/meta.md 3.5)."""
