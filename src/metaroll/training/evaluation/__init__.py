"""Evaluators of policies and of meta-learners, robustness maps, studies of adaptation."""
