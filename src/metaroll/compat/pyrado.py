"""Names of seed document 004: Pyrado's ``sampling`` package.

A name that is not built yet raises an AttributeError; ``docs/coverage.md`` lists the state of each.
"""

from __future__ import annotations

from metaroll.exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    built={
        "data.data_format": ["cat_to_format", "new_tuple", "stack_to_format", "to_format"],
        "data.rollout_values": ["check_act_equal", "discounted_value", "discounted_values", "gae_returns"],
        "data.step_sequence": ["DictIndexProxy", "Step", "StepSequence"],
        "functional.bootstrap": ["bootstrap_ci"],
        "functional.hyper_sphere": ["sample_from_hyper_sphere_surface"],
        "functional.minibatches": [
            "gen_ordered_batch_idcs",
            "gen_ordered_batches",
            "gen_shuffled_batch_idcs",
            "shuffled_ordered_batches",
        ],
        "functional.returns": ["discounted_reverse_cumsum"],
        "functional.sequences": [
            "sequence",
            "sequence_add_init",
            "sequence_const",
            "sequence_nlog2",
            "sequence_plus_one",
            "sequence_rec_double",
            "sequence_rec_sqrt",
            "sequence_sqrt",
        ],
        "inference.embeddings": [
            "AllStepsEmbedding",
            "BayesSimEmbedding",
            "DeltaStepsEmbedding",
            "DynamicTimeWarpingEmbedding",
            "Embedding",
            "LastStepEmbedding",
            "RNNEmbedding",
        ],
        "rollouts.samplers.cvar": ["CVaRSampler", "select_cvar"],
        "rollouts.single.rollout": ["rollout"],
        "rollouts.samplers.evaluation": [
            "eval_domain_params",
            "eval_domain_params_with_segmentwise_reset",
            "eval_nominal_domain",
            "eval_randomized_domain",
        ],
        "rollouts.samplers.parallel": ["ParallelRolloutSampler"],
        "rollouts.samplers.parameter_exploration": [
            "ParameterExplorationSampler",
            "ParameterSample",
            "ParameterSamplingResult",
        ],
        "lab.display.interactive": ["after_rollout_query"],
        "rollouts.samplers.param_sets": ["check_domain_params"],
        "rollouts.samplers.sampler": ["SamplerBase"],
        "rollouts.samplers.sbi": [
            "RealRolloutSamplerForSBI",
            "RecRolloutSamplerForSBI",
            "RolloutSamplerForSBI",
            "SimRolloutSamplerForSBI",
        ],
        "rollouts.workers.pool": ["GlobalNamespace", "SamplerPool"],
        "types": ["RenderMode"],
    },
)
