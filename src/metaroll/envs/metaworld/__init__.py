"""Meta-World (extra ``metaworld``): benchmarks, tasks, environments and their task sampler."""
