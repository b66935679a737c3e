"""Documented names: present, with the documented parameters, and each with a test of its behavior (design.md 7)."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def _load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coverage_table", ROOT / "tools" / "coverage_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # NamedTuple looks its module up
    spec.loader.exec_module(module)
    return module


tool = _load_tool()
DOCUMENTED = tool.load_documented()
CLAIMED = [item for item in DOCUMENTED if item["name"] in tool.DONE.get(item["seed"], ())]

PEARL_TESTS = "tests/unit/test_learners_pearl.py"
WORKER_TESTS = "tests/unit/test_rollouts_workers.py"
POOL_TESTS = "tests/unit/test_rollouts_run_collect.py"
SAMPLER_TESTS = "tests/unit/test_rollouts_parallel_sampler.py"
CVAR_TESTS = "tests/unit/test_rollouts_cvar_sampler.py"
EMBEDDING_TESTS = "tests/unit/test_inference_embeddings.py"
SBI_SAMPLER_TESTS = "tests/unit/test_rollouts_sbi_samplers.py"
EXPLORATION_TESTS = "tests/unit/test_rollouts_parameter_exploration.py"
EVALUATION_TESTS = "tests/unit/test_rollouts_parallel_evaluation.py"
SEQUENCE_TESTS = "tests/unit/test_data_step_sequence.py"
BATCH_TESTS = "tests/unit/test_data_batches.py"
FORMAT_TESTS = "tests/unit/test_data_data_format.py"
MINIBATCH_TESTS = "tests/unit/test_functional_minibatches.py"
VALUE_TESTS = "tests/unit/test_data_rollout_values.py"
FUNCTIONAL_SEQUENCE_TESTS = "tests/unit/test_functional_sequences.py"
SET_TASK_TESTS = "tests/unit/test_tasks_task_sampler.py"
FINITE_TESTS = "tests/unit/test_tasks_finite_samplers.py"
METAWORLD_TESTS = "tests/unit/test_envs_metaworld_sampler.py"
META_SAMPLER_TESTS = "tests/unit/test_rollouts_meta_sampler.py"
EXECUTOR_TESTS = "tests/unit/test_rollouts_executors.py"
PROCESSOR_TESTS = "tests/unit/test_processing_sample_processor.py"
EVOLUTION_TESTS = "tests/unit/test_learners_evolution.py"
OFF_POLICY_TESTS = "tests/unit/test_learners_off_policy.py"
BEHAVIOR_TESTS = {
    "CEM": f"{EVOLUTION_TESTS}::test_an_epoch_of_cem_is_one_call_for_each_candidate",
    "CEM.train": f"{EVOLUTION_TESTS}::test_candidates_take_batch_size_steps_as_one_batch",
    "CEM.train_once": f"{EVOLUTION_TESTS}::test_an_epoch_of_cem_is_one_call_for_each_candidate",
    "CMAES": f"{EVOLUTION_TESTS}::test_an_epoch_of_cmaes_moves_the_policy_to_the_mean",
    "CMAES.train": f"{EVOLUTION_TESTS}::test_a_search_that_reaches_its_target_ends",
    "CMAES.train_once": f"{EVOLUTION_TESTS}::test_an_epoch_of_cmaes_moves_the_policy_to_the_mean",
    "OffPolicyRLAlgorithm": f"{OFF_POLICY_TESTS}::test_what_is_stored_of_an_end",
    "OffPolicyRLAlgorithm.init_opt": f"{OFF_POLICY_TESTS}::test_cycles_collect_and_are_numbered",
    "OffPolicyRLAlgorithm.log_diagnostics": f"{OFF_POLICY_TESTS}::test_cycles_collect_and_are_numbered",
    "OffPolicyRLAlgorithm.process_samples": f"{OFF_POLICY_TESTS}::test_cycles_collect_and_are_numbered",
    "OffPolicyRLAlgorithm.train": f"{OFF_POLICY_TESTS}::test_cycles_collect_and_are_numbered",
    "OffPolicyRLAlgorithm.train_once": f"{OFF_POLICY_TESTS}::test_rewards_are_scaled_as_they_enter_the_update",
    "NOP": f"{EVOLUTION_TESTS}::test_nothing_is_optimized",
    "NOP.init_opt": f"{EVOLUTION_TESTS}::test_nothing_is_optimized",
    "NOP.optimize_policy": f"{EVOLUTION_TESTS}::test_nothing_is_optimized",
    "NOP.train": f"{EVOLUTION_TESTS}::test_nothing_is_optimized",
    "Sampler": f"{META_SAMPLER_TESTS}::test_the_interface_of_samplers",
    "Sampler.obtain_samples": f"{META_SAMPLER_TESTS}::test_the_interface_of_samplers",
    "MetaSampler": f"{META_SAMPLER_TESTS}::test_exactly_so_many_paths_of_each_task_however_long_they_are",
    "MetaSampler.obtain_samples": (
        f"{META_SAMPLER_TESTS}::test_exactly_so_many_paths_of_each_task_however_long_they_are"
    ),
    "MetaSampler.update_tasks": f"{META_SAMPLER_TESTS}::test_tasks_hold_from_the_next_call_on_and_differ",
    "SampleProcessor": f"{PROCESSOR_TESTS}::test_documented_keys_shapes_and_values",
    "SampleProcessor.process_samples": f"{PROCESSOR_TESTS}::test_documented_keys_shapes_and_values",
    "DiceSampleProcessor": f"{PROCESSOR_TESTS}::test_dice_pads_with_zeros_and_counts_true_steps_only",
    "DiceSampleProcessor.process_samples": f"{PROCESSOR_TESTS}::test_dice_pads_with_zeros_and_counts_true_steps_only",
    "MetaSampleProcessor": f"{PROCESSOR_TESTS}::test_meta_processor_fits_each_task_and_pools_rewards",
    "MetaSampleProcessor.process_samples": f"{PROCESSOR_TESTS}::test_meta_processor_fits_each_task_and_pools_rewards",
    **{
        f"{name}{member}": f"{EXECUTOR_TESTS}::{test}"
        for name in ("MetaIterativeEnvExecutor", "MetaParallelEnvExecutor")
        for member, test in (
            ("", "test_both_executors_agree_step_by_step"),
            (".num_envs", "test_form_of_what_is_returned"),
            (".reset", "test_both_executors_agree_step_by_step"),
            (".set_tasks", "test_tasks_are_those_of_their_environments"),
            (".step", "test_an_ended_episode_tells_how_and_the_next_one_begins"),
        )
    },
    "TaskSampler": f"{SET_TASK_TESTS}::test_task_sampler_is_abstract_with_unknown_number_of_tasks",
    "TaskSampler.n_tasks": f"{SET_TASK_TESTS}::test_task_sampler_is_abstract_with_unknown_number_of_tasks",
    "TaskSampler.sample": f"{SET_TASK_TESTS}::test_task_sampler_is_abstract_with_unknown_number_of_tasks",
    "ConstructEnvsSampler": f"{FINITE_TESTS}::test_construct_envs_sampler_builds_new_environments",
    "ConstructEnvsSampler.n_tasks": f"{FINITE_TESTS}::test_construct_envs_sampler_builds_new_environments",
    "ConstructEnvsSampler.sample": f"{FINITE_TESTS}::test_construct_envs_sampler_with_replacement",
    "SetTaskSampler": f"{SET_TASK_TESTS}::test_set_task_sampler_takes_functions_and_old_sample_tasks",
    "SetTaskSampler.n_tasks": (
        f"{SET_TASK_TESTS}::test_set_task_sampler_uses_the_given_environment_and_its_number_of_tasks"
    ),
    "SetTaskSampler.sample": f"{SET_TASK_TESTS}::test_set_task_sampler_gives_updates_with_different_tasks",
    "EnvPoolSampler": f"{FINITE_TESTS}::test_env_pool_sampler_returns_the_very_environments",
    "EnvPoolSampler.grow_pool": f"{FINITE_TESTS}::test_grow_pool_copies_environments_of_the_pool",
    "EnvPoolSampler.n_tasks": f"{FINITE_TESTS}::test_env_pool_sampler_returns_the_very_environments",
    "EnvPoolSampler.sample": f"{FINITE_TESTS}::test_env_pool_sampler_refuses_what_a_pool_cannot_give",
    "MetaWorldTaskSampler": f"{METAWORLD_TESTS}::test_updates_of_a_class_stand_together_in_the_order_of_the_classes",
    "MetaWorldTaskSampler.n_tasks": f"{METAWORLD_TESTS}::test_fifty_tasks_per_class",
    "MetaWorldTaskSampler.sample": (
        f"{METAWORLD_TESTS}::test_every_class_goes_through_all_tasks_before_one_comes_again"
    ),
    "MW_TASKS_PER_ENV": f"{METAWORLD_TESTS}::test_fifty_tasks_per_class",
    "PEARL": f"{PEARL_TESTS}::test_documented_order_and_defaults",
    "PEARL.adapt_policy": f"{PEARL_TESTS}::test_adapt_policy_infers_the_posterior_of_all_steps",
    "PEARL.augment_env_spec": f"{PEARL_TESTS}::test_augment_env_spec_appends_the_latent",
    "PEARL.get_env_spec": f"{PEARL_TESTS}::test_get_env_spec_of_the_encoder",
    "PEARL.get_exploration_policy": (
        f"{PEARL_TESTS}::test_exploration_policies_are_independent_and_begin_with_the_prior"
    ),
    "PEARL.networks": f"{PEARL_TESTS}::test_policy_and_networks",
    "PEARL.policy": f"{PEARL_TESTS}::test_policy_and_networks",
    "PEARL.to": f"{PEARL_TESTS}::test_to_moves_networks_and_optimizer_state",
    "PEARL.train": f"{PEARL_TESTS}::test_train_logs_evaluates_and_returns_the_last_meta_test_return",
    "PEARLWorker": f"{WORKER_TESTS}::test_pearl_worker_rollout_shapes_and_context",
    "PEARLWorker.agent": f"{WORKER_TESTS}::test_pearl_worker_agent_and_env",
    "PEARLWorker.env": f"{WORKER_TESTS}::test_pearl_worker_agent_and_env",
    "PEARLWorker.rollout": f"{WORKER_TESTS}::test_pearl_worker_rollout_shapes_and_context",
    "PEARLWorker.start_rollout": f"{WORKER_TESTS}::test_pearl_worker_start_and_step",
    "PEARLWorker.step_rollout": f"{WORKER_TESTS}::test_pearl_worker_start_and_step",
    "DictIndexProxy": f"{SEQUENCE_TESTS}::test_proxy_of_a_plain_dict",
    "Step": f"{SEQUENCE_TESTS}::test_step_views",
    "StepSequence": f"{SEQUENCE_TESTS}::test_lists_dicts_and_tuples",
    "StepSequence.add_data": f"{SEQUENCE_TESTS}::test_add_data",
    "StepSequence.concat": f"{SEQUENCE_TESTS}::test_concat_keeps_final_observations_reachable",
    "StepSequence.convert": f"{SEQUENCE_TESTS}::test_convert",
    "StepSequence.data_format": f"{SEQUENCE_TESTS}::test_format_is_torch_if_any_data_is",
    "StepSequence.data_names": f"{SEQUENCE_TESTS}::test_arrays_are_taken_as_they_are",
    "StepSequence.discounted_return": f"{SEQUENCE_TESTS}::test_returns",
    "StepSequence.from_pandas": "tests/unit/test_data_labeled_tables.py::test_labeled_columns_become_fields",
    "StepSequence.get_data_values": f"{SEQUENCE_TESTS}::test_get_data_values",
    "StepSequence.get_rollout": f"{SEQUENCE_TESTS}::test_get_rollout",
    "StepSequence.iterate_rollouts": f"{SEQUENCE_TESTS}::test_concat_keeps_final_observations_reachable",
    "StepSequence.length": f"{SEQUENCE_TESTS}::test_arrays_are_taken_as_they_are",
    "StepSequence.numpy": f"{SEQUENCE_TESTS}::test_convert",
    "StepSequence.pad": "tests/unit/test_data_padding.py::test_pad_lengthens_the_data_in_place",
    "StepSequence.process_data": (
        "tests/unit/test_data_field_processing.py::test_every_field_of_every_rollout_is_processed_apart"
    ),
    "StepSequence.required_fields": f"{SEQUENCE_TESTS}::test_required_fields_of_a_subclass",
    "StepSequence.rollout_bounds": f"{SEQUENCE_TESTS}::test_done_and_bounds",
    "StepSequence.rollout_count": f"{SEQUENCE_TESTS}::test_done_and_bounds",
    "StepSequence.rollout_lengths": f"{SEQUENCE_TESTS}::test_done_and_bounds",
    "StepSequence.sample_w_next": f"{BATCH_TESTS}::test_sample_w_next_takes_steps_that_are_followed_by_one",
    "StepSequence.split_ordered_batches": f"{BATCH_TESTS}::test_ordered_batches_are_continuous",
    "StepSequence.split_shuffled_batches": f"{BATCH_TESTS}::test_shuffled_batches_hold_every_step_once",
    "StepSequence.torch": f"{SEQUENCE_TESTS}::test_convert",
    "StepSequence.undiscounted_return": f"{SEQUENCE_TESTS}::test_returns",
    "cat_to_format": f"{FORMAT_TESTS}::test_cat",
    "check_act_equal": f"{VALUE_TESTS}::test_check_act_equal_of_rollouts_and_lists",
    "discounted_reverse_cumsum": "tests/unit/test_functional_returns.py::test_reverse_cumsum_of_rewards",
    "discounted_value": f"{VALUE_TESTS}::test_discounted_value_of_one_rollout",
    "discounted_values": f"{VALUE_TESTS}::test_discounted_values_of_several_rollouts",
    "gae_returns": f"{VALUE_TESTS}::test_gae_restarts_and_bootstraps_at_every_end",
    "gen_ordered_batch_idcs": f"{MINIBATCH_TESTS}::test_ordered_positions",
    "gen_ordered_batches": f"{MINIBATCH_TESTS}::test_ordered_samples_are_taken_as_they_are_asked_for",
    "gen_shuffled_batch_idcs": f"{MINIBATCH_TESTS}::test_shuffled_positions_cover_the_data_once",
    "new_tuple": f"{FORMAT_TESTS}::test_new_tuple",
    "shuffled_ordered_batches": f"{MINIBATCH_TESTS}::test_shuffled_batches_keep_their_inner_order",
    "stack_to_format": f"{FORMAT_TESTS}::test_stack",
    "to_format": f"{FORMAT_TESTS}::test_to_format_shares_memory_and_keeps_dtypes",
    "GlobalNamespace": f"{POOL_TESTS}::test_namespace_is_one_object_per_worker_that_outlives_calls",
    "ParallelRolloutSampler": f"{SAMPLER_TESTS}::test_samples_are_the_shortest_prefix_that_is_enough",
    "ParallelRolloutSampler.reinit": (
        f"{SAMPLER_TESTS}::test_changed_environments_need_reinit_and_changed_parameters_do_not"
    ),
    "ParallelRolloutSampler.sample": f"{SAMPLER_TESTS}::test_repetition_of_given_states_and_parameters",
    "CVaRSampler": f"{CVAR_TESTS}::test_at_least_min_rollouts_are_kept",
    "CVaRSampler.reinit": f"{CVAR_TESTS}::test_arguments_and_reinit_are_handed_on",
    "CVaRSampler.sample": f"{CVAR_TESTS}::test_arguments_and_reinit_are_handed_on",
    "CVaRSampler.set_min_count": f"{CVAR_TESTS}::test_changing_epsilon_changes_how_many_are_sampled",
    "select_cvar": f"{CVAR_TESTS}::test_select_cvar_keeps_the_worst",
    "ParameterExplorationSampler": f"{EXPLORATION_TESTS}::test_a_rollout_is_that_of_the_policy_with_these_parameters",
    "ParameterExplorationSampler.num_rollouts_per_param": (
        f"{EXPLORATION_TESTS}::test_every_set_meets_the_same_pairs_of_domain_and_state"
    ),
    "ParameterExplorationSampler.reinit": (
        f"{EXPLORATION_TESTS}::test_reinit_takes_the_new_environment_s_randomization"
    ),
    "ParameterExplorationSampler.sample": (
        f"{EXPLORATION_TESTS}::test_every_set_meets_the_same_pairs_of_domain_and_state"
    ),
    "ParameterSample": f"{EXPLORATION_TESTS}::test_samples_and_results",
    "ParameterSample.mean_undiscounted_return": f"{EXPLORATION_TESTS}::test_samples_and_results",
    "ParameterSample.num_rollouts": f"{EXPLORATION_TESTS}::test_samples_and_results",
    "ParameterSample.params": f"{EXPLORATION_TESTS}::test_samples_and_results",
    "ParameterSample.rollouts": f"{EXPLORATION_TESTS}::test_samples_and_results",
    "ParameterSamplingResult": f"{EXPLORATION_TESTS}::test_samples_and_results",
    "ParameterSamplingResult.mean_returns": f"{EXPLORATION_TESTS}::test_samples_and_results",
    "ParameterSamplingResult.num_rollouts": f"{EXPLORATION_TESTS}::test_samples_and_results",
    "ParameterSamplingResult.parameters": f"{EXPLORATION_TESTS}::test_samples_and_results",
    "ParameterSamplingResult.rollouts": f"{EXPLORATION_TESTS}::test_samples_and_results",
    "eval_domain_params": f"{EVALUATION_TESTS}::test_one_rollout_per_set_of_domain_parameters",
    "eval_domain_params_with_segmentwise_reset": (f"{EVALUATION_TESTS}::test_segments_start_in_the_recorded_states"),
    "eval_nominal_domain": f"{EVALUATION_TESTS}::test_the_nominal_domain_is_that_of_the_environment",
    "eval_randomized_domain": f"{EVALUATION_TESTS}::test_randomized_domains_are_drawn_from_the_seed",
    "SamplerBase": "tests/unit/test_rollouts_sampler.py::test_sampler_base_is_abstract_and_keeps_its_bounds",
    "SamplerBase.reinit": "tests/unit/test_rollouts_sampler.py::test_sampler_base_is_abstract_and_keeps_its_bounds",
    "SamplerBase.sample": "tests/unit/test_rollouts_sampler.py::test_sampler_base_is_abstract_and_keeps_its_bounds",
    "SamplerBase.set_min_count": "tests/unit/test_rollouts_sampler.py::test_set_min_count_replaces_both",
    "SamplerPool": "tests/unit/test_rollouts_sampler_pool.py::test_invoke_all_and_maps",
    "SamplerPool.invoke_all": "tests/unit/test_rollouts_sampler_pool.py::test_invoke_all_and_maps",
    "SamplerPool.invoke_all_map": "tests/unit/test_rollouts_sampler_pool.py::test_invoke_all_and_maps",
    "SamplerPool.run_collect": f"{POOL_TESTS}::test_kept_is_the_shortest_prefix_for_any_number_of_workers",
    "SamplerPool.run_map": f"{POOL_TESTS}::test_progress_bar_of_run_map",
    "SamplerPool.set_seed": (f"{POOL_TESTS}::test_set_seed_seeds_worker_i_with_seed_plus_i_and_the_stream_goes_on"),
    "SamplerPool.stop": f"{POOL_TESTS}::test_stop_ends_the_workers",
    "after_rollout_query": "tests/unit/test_rollouts_query.py::test_continue",
    "bootstrap_ci": "tests/unit/test_functional_bootstrap.py::test_documented_use",
    "sample_from_hyper_sphere_surface": "tests/unit/test_functional_hyper_sphere.py::test_one_point_of_norm_one",
    "sequence": f"{FUNCTIONAL_SEQUENCE_TESTS}::test_sequence_of_a_rule_of_ones_own",
    "sequence_add_init": f"{FUNCTIONAL_SEQUENCE_TESTS}::test_values",
    "sequence_const": f"{FUNCTIONAL_SEQUENCE_TESTS}::test_values",
    "sequence_nlog2": f"{FUNCTIONAL_SEQUENCE_TESTS}::test_values",
    "sequence_plus_one": f"{FUNCTIONAL_SEQUENCE_TESTS}::test_values",
    "sequence_rec_double": f"{FUNCTIONAL_SEQUENCE_TESTS}::test_values",
    "sequence_rec_sqrt": f"{FUNCTIONAL_SEQUENCE_TESTS}::test_values",
    "sequence_sqrt": f"{FUNCTIONAL_SEQUENCE_TESTS}::test_values",
    "rollout": "tests/unit/test_rollouts_episode.py::test_every_documented_parameter_and_field",
    "AllStepsEmbedding": f"{EMBEDDING_TESTS}::test_features_are_those_of_a_loop_over_steps",
    "AllStepsEmbedding.dim_output": f"{EMBEDDING_TESTS}::test_dim_output_is_the_number_of_features",
    "AllStepsEmbedding.name": f"{EMBEDDING_TESTS}::test_names_and_needs",
    "AllStepsEmbedding.requires_target_domain_data": f"{EMBEDDING_TESTS}::test_names_and_needs",
    "AllStepsEmbedding.summary_statistic": f"{EMBEDDING_TESTS}::test_one_call_for_all_equals_calls_row_by_row",
    "BayesSimEmbedding": f"{EMBEDDING_TESTS}::test_features_are_those_of_a_loop_over_steps",
    "BayesSimEmbedding.dim_output": f"{EMBEDDING_TESTS}::test_dim_output_is_the_number_of_features",
    "BayesSimEmbedding.name": f"{EMBEDDING_TESTS}::test_names_and_needs",
    "BayesSimEmbedding.requires_target_domain_data": f"{EMBEDDING_TESTS}::test_names_and_needs",
    "BayesSimEmbedding.summary_statistic": f"{EMBEDDING_TESTS}::test_one_call_for_all_equals_calls_row_by_row",
    "DeltaStepsEmbedding": f"{EMBEDDING_TESTS}::test_features_are_those_of_a_loop_over_steps",
    "DeltaStepsEmbedding.dim_output": f"{EMBEDDING_TESTS}::test_dim_output_is_the_number_of_features",
    "DeltaStepsEmbedding.name": f"{EMBEDDING_TESTS}::test_names_and_needs",
    "DeltaStepsEmbedding.requires_target_domain_data": f"{EMBEDDING_TESTS}::test_names_and_needs",
    "DeltaStepsEmbedding.summary_statistic": f"{EMBEDDING_TESTS}::test_one_call_for_all_equals_calls_row_by_row",
    "DynamicTimeWarpingEmbedding": f"{EMBEDDING_TESTS}::test_warped_distances_are_those_of_dtw_python",
    "DynamicTimeWarpingEmbedding.dim_output": f"{EMBEDDING_TESTS}::test_dim_output_is_the_number_of_features",
    "DynamicTimeWarpingEmbedding.name": f"{EMBEDDING_TESTS}::test_names_and_needs",
    "DynamicTimeWarpingEmbedding.requires_target_domain_data": f"{EMBEDDING_TESTS}::test_names_and_needs",
    "DynamicTimeWarpingEmbedding.summary_statistic": (
        f"{EMBEDDING_TESTS}::test_one_call_for_all_equals_calls_row_by_row"
    ),
    "Embedding": f"{EMBEDDING_TESTS}::test_an_embedding_of_ones_own",
    "Embedding.device": f"{EMBEDDING_TESTS}::test_everything_stays_on_the_device",
    "Embedding.dim_output": f"{EMBEDDING_TESTS}::test_an_embedding_of_ones_own",
    "Embedding.forward": f"{EMBEDDING_TESTS}::test_one_call_for_all_equals_calls_row_by_row",
    "Embedding.forward_one_batch": f"{EMBEDDING_TESTS}::test_one_call_for_all_equals_calls_row_by_row",
    "Embedding.pack": f"{EMBEDDING_TESTS}::test_pack_and_unpack",
    "Embedding.summary_statistic": f"{EMBEDDING_TESTS}::test_an_embedding_of_ones_own",
    "Embedding.unpack": f"{EMBEDDING_TESTS}::test_pack_and_unpack",
    "LastStepEmbedding": f"{EMBEDDING_TESTS}::test_features_are_those_of_a_loop_over_steps",
    "LastStepEmbedding.dim_output": f"{EMBEDDING_TESTS}::test_dim_output_is_the_number_of_features",
    "LastStepEmbedding.name": f"{EMBEDDING_TESTS}::test_names_and_needs",
    "LastStepEmbedding.requires_target_domain_data": f"{EMBEDDING_TESTS}::test_names_and_needs",
    "LastStepEmbedding.summary_statistic": f"{EMBEDDING_TESTS}::test_one_call_for_all_equals_calls_row_by_row",
    "RNNEmbedding": f"{EMBEDDING_TESTS}::test_recurrent_features_are_those_of_torch_s_network",
    "RNNEmbedding.dim_output": f"{EMBEDDING_TESTS}::test_dim_output_is_the_number_of_features",
    "RNNEmbedding.init_param": f"{EMBEDDING_TESTS}::test_init_param_draws_or_sets_all_weights",
    "RNNEmbedding.name": f"{EMBEDDING_TESTS}::test_names_and_needs",
    "RNNEmbedding.requires_target_domain_data": f"{EMBEDDING_TESTS}::test_names_and_needs",
    "RNNEmbedding.summary_statistic": f"{EMBEDDING_TESTS}::test_one_call_for_all_equals_calls_row_by_row",
    "RealRolloutSamplerForSBI": f"{SBI_SAMPLER_TESTS}::test_real_rollouts_have_the_form_of_simulations",
    "RecRolloutSamplerForSBI": f"{SBI_SAMPLER_TESTS}::test_recorded_rollouts_come_in_turns",
    "RecRolloutSamplerForSBI.num_rollouts": f"{SBI_SAMPLER_TESTS}::test_recorded_rollouts_come_in_turns",
    "RecRolloutSamplerForSBI.ring_idx": f"{SBI_SAMPLER_TESTS}::test_recorded_rollouts_come_in_turns",
    "RolloutSamplerForSBI": f"{SBI_SAMPLER_TESTS}::test_bad_options",
    "RolloutSamplerForSBI.get_dim_data": f"{SBI_SAMPLER_TESTS}::test_observations_instead_of_states",
    "SimRolloutSamplerForSBI": (
        f"{SBI_SAMPLER_TESTS}::test_segments_are_simulated_from_recorded_states_and_features_are_of_whole_rollouts"
    ),
    "check_domain_params": f"{SBI_SAMPLER_TESTS}::test_check_domain_params",
}
"""Every documented member of the finished seeds -> the test of its behavior, which names its section of the specs."""


def documented_members(items: list[dict[str, Any]]) -> set[str]:
    """``Class`` and ``Class.member`` of documented names."""
    return {
        name
        for item in items
        for name in (item["name"], *(f"{item['name']}.{member['name']}" for member in item.get("members", [])))
    }


def test_committed_table_is_current() -> None:
    assert tool.main(["--check"]) == 0, "docs/coverage.md is out of date: run python tools/coverage_table.py"


@pytest.mark.parametrize("item", CLAIMED, ids=lambda item: item["name"])
def test_claimed_name_has_every_documented_parameter_and_member(item: dict[str, Any]) -> None:
    value = tool.find(item)
    assert value is not tool.MISSING
    assert tool.lacking(item, value) == []


def test_whole_of_seed_003_is_claimed() -> None:
    assert {item["name"] for item in DOCUMENTED if item["seed"] == "003"} == {"PEARL", "PEARLWorker"}
    assert tool.DONE["003"] == {"PEARL", "PEARLWorker"}


@functools.cache
def functions_of(path: str) -> dict[str, str]:
    """Name -> docstring of the functions of a test module."""
    source = ROOT / path
    assert source.exists(), f"{path} does not exist"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return {n.name: ast.get_docstring(n) or "" for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_every_documented_member_has_a_behavior_test() -> None:
    assert documented_members(CLAIMED) == set(BEHAVIOR_TESTS)


@pytest.mark.parametrize("member", BEHAVIOR_TESTS)
def test_behavior_test_exists_and_names_its_spec(member: str) -> None:
    path, _, name = BEHAVIOR_TESTS[member].partition("::")
    known = functions_of(path)
    assert name in known, f"{path} has no test {name}"
    assert "specs/" in known[name], f"the docstring of {name} must name the section of the specs that it checks"


@pytest.mark.parametrize("compat", sorted({compat for compat, _ in tool.SEEDS.values()}))
def test_compat_offers_or_announces_every_documented_name(compat: str) -> None:
    module = importlib.import_module(f"metaroll.compat.{compat}")
    documented = [item["name"] for item in DOCUMENTED if tool.SEEDS[item["seed"]][0] == compat]
    for name in {*documented, *dir(module)}:
        if name in dir(module):
            assert getattr(module, name) is not None
        else:
            with pytest.raises(AttributeError, match="planned, but not built yet"):
                getattr(module, name)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        module.nonsense  # noqa: B018
