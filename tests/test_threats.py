"""Every attack that Keyturn claims to stop has a test, and most have a twin without the guard.

A twin takes the guard away, or does the same where it is allowed, and something else happens then.
Neither test may go without another that shows the same.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# The attack, then the tests that show that it fails and what would happen without the guard.
THREATS = {
    # Authority, approvals and time.
    "a requester approves their own request": (
        "TestApprovers::test_approval_is_refused_when_requester_approves",
        "TestApprovers::test_without_the_requester_check_a_requester_approves_their_own_run",
    ),
    "the owner of an agent, or its person, approves what it requests": (
        "test_gate_refuses_approval_of_the_owner_of_an_agent",
        "test_without_the_guard_the_owner_of_an_agent_approves_its_request",
    ),
    "one approval counts twice, or starts two runs": (
        "TestApprovers::test_approval_of_one_person_counts_once_when_two_are_required",
        "test_without_the_pending_check_a_run_is_enqueued_twice",
    ),
    "an approval overtakes a denial": (
        "TestDenialSetBack::test_a_denial_wins_over_an_approval_until_something_is_sent",
        "TestDenialSetBack::test_denial_row_alone_stops_a_reset_run_without_the_evidence_check",
    ),
    "an approval counts after it expired": (
        "TestApprovalExpiry::test_an_approval_does_not_count_when_the_request_expired",
        "TestApprovalExpiry::test_without_the_pending_check_an_expired_request_is_approved",
    ),
    "an approver who lost the role counts": (
        "TestLostRoles::test_an_approval_does_not_count_when_the_approver_lost_the_role",
        "TestLostRoles::test_without_the_recount_the_approval_of_a_former_owner_counts",
    ),
    "a requester who lost the role goes on": (
        "TestRoleLostDuringFanOut::test_no_further_host_is_reached_when_the_requester_loses_the_role",
        "TestRoleLostDuringFanOut::test_without_the_recount_every_host_is_changed_after_the_role_is_lost",
    ),
    "rows are altered so that something else is approved": (
        "TestForgedApprovals::test_forged_approval_rows_do_not_start_a_run",
        "TestForgedApprovals::test_without_the_evidence_check_forged_rows_approve_a_run",
    ),
    "something else is sent than was shown": (
        "TestApprovedPlan::test_run_is_stale_when_its_runbook_changed_after_the_approval",
        "TestApprovedPlan::test_without_the_plan_check_a_changed_runbook_runs_with_the_old_approval",
    ),
    "two changes take both legs of a service": (
        "test_two_runs_never_take_both_legs",
        "test_without_the_claims_two_runs_take_both_legs",
    ),
    "the guard opens while nothing can be checked": (
        "test_guard_refuses_every_leg_of_a_cut_set_while_all_states_are_unknown",
        "test_guard_comparing_before_and_after_would_allow_the_last_leg_when_all_is_unknown",
    ),
    "a host changed after the approval": (
        "TestApprovedPlan::test_run_is_stale_when_the_state_of_the_host_changed_after_the_approval",
        "TestApprovedPlan::test_without_the_plan_check_a_run_is_sent_to_a_host_that_changed",
    ),
    "a late result overwrites a newer state": (
        "TestLateStepResult::test_late_step_result_does_not_overwrite_a_resolved_run",
        "TestLateStepResult::test_without_the_transition_check_a_late_step_result_overwrites_the_run",
    ),
    "a button is forged": (
        "test_forged_button_value_decides_nothing",
        "test_without_the_message_check_a_copied_button_approves",
    ),
    "an approver sees only part of the plan": (
        "test_plan_too_long_for_slack_has_no_approve_button_and_links_to_its_page",
        "test_without_the_length_check_a_plan_too_long_for_slack_can_be_approved",
    ),
    "a schedule fires without its owner or its approval": (
        "TestLapsedApproval::test_a_schedule_does_not_fire_when_its_approval_lapsed",
        "TestLapsedApproval::test_without_the_approval_check_a_lapsed_schedule_fires",
    ),
    "a broken policy lets things through": (
        "TestInvalidPolicy::test_approved_run_is_refused_when_the_policy_becomes_invalid",
        "TestInvalidPolicy::test_with_a_cached_policy_an_approved_run_starts_despite_an_invalid_policy",
    ),
    "a route or command has no guard": (
        "test_every_api_route_is_in_the_table",
        "test_web_route_missing_from_the_table_is_detected",
    ),
    "break-glass is used without a reason, a factor or a review": (
        "test_break_glass_is_refused_while_an_older_use_is_not_reviewed",
        "TestWithoutGuards::test_without_the_review_check_break_glass_is_used_again_unreviewed",
    ),
    "a change runs in a freeze": (
        "TestFreeze::test_due_time_is_skipped_during_a_freeze",
        "TestFreeze::test_without_the_freeze_check_a_due_time_fires_during_a_freeze",
    ),
    "a bad change reaches all hosts at once": (
        "test_fan_out_starts_no_further_wave_after_a_failure",
        "test_without_waves_every_host_is_changed_despite_a_failure",
    ),
    "one person floods the service": (
        "TestRateLimits::test_rate_limit_refuses_requests_above_the_limit_of_a_person",
        "TestRateLimits::test_without_a_rate_limit_one_person_makes_any_number_of_requests",
    ),
    "a banned person goes on": (
        "TestBans::test_ban_during_a_run_stops_it_before_the_next_step",
        "TestBans::test_without_the_ban_check_the_next_step_is_sent",
    ),
    "who may provision people takes the account of an administrator": (
        "test_external_id_of_a_person_of_people_yaml_cannot_change",
        "test_without_the_check_whoever_has_the_token_of_scim_signs_in_as_an_administrator",
    ),
    "an own runbook runs with a file that two people have not enabled": (
        "test_own_runbook_is_refused_until_two_people_have_enabled_it",
        "test_without_the_guard_an_own_runbook_runs_without_being_enabled",
    ),
    # The change log.
    "something is done while the log cannot be written": (
        "TestUnwritableLog::test_no_command_is_sent_when_the_change_log_cannot_be_written",
        "TestUnwritableLog::test_without_the_log_entry_a_change_is_sent_unrecorded",
    ),
    "the database freezes": (
        "test_a_frozen_database_refuses_the_run_before_any_packet",
        "test_without_the_statement_timeout_callers_wait_for_a_frozen_database",
    ),
    "the log breaks while a run executes": (
        "test_run_stops_when_the_change_log_fails_and_the_spool_is_merged",
        "test_without_the_spool_the_outcome_of_a_step_is_lost",
    ),
    "an entry is inserted, deleted, reordered or edited": (
        "test_verification_finds_inserted_deleted_reordered_and_edited_entries",
        "test_without_the_hash_comparison_an_edited_entry_is_not_found",
    ),
    "the end of the log is cut off": ("test_truncated_log_is_found_by_a_witness",),
    "the log is forked": ("test_forked_log_is_found_by_a_witness",),
    "the log is signed anew with another key": (
        "test_log_signed_with_another_key_is_found_when_the_key_is_known",
        "TestApprovalsUnderAnOlderKey::test_without_inclusion_an_approval_forged_before_a_key_rotation_counts",
    ),
    "the service's own database role rewrites the log": (
        "test_service_role_cannot_alter_the_change_log",
        "test_without_the_service_role_the_table_owner_rewrites_the_change_log",
    ),
    "two writers make two logs": (
        "test_writer_with_an_outdated_head_cannot_fork_the_change_log",
        "test_without_the_head_lock_and_primary_key_the_change_log_forks",
    ),
    "one person erases output": (
        "TestErasure::test_erasure_needs_confirmation_by_a_second_person",
        "TestErasure::test_without_the_confirmation_check_one_person_erases_output",
    ),
    "the service signs on top of a rewritten log": (
        "TestRewrittenEntries::test_service_never_signs_the_root_of_a_rewritten_change_log",
        "TestRewrittenEntries::test_without_the_head_check_a_new_process_signs_a_rewritten_log",
    ),
    "a forged entry is covered by a rotation of the key": (
        "TestKeyRotation::test_signing_key_is_not_rotated_over_a_forged_approval",
        "TestKeyRotation::test_without_head_check_and_verification_a_forged_approval_starts_a_run",
    ),
    "a denial or ban is taken out of the log": (
        "TestRemovedEntries::test_denied_change_does_not_run_when_its_denial_is_removed_from_the_log",
        "TestRemovedEntries::test_without_the_followed_log_and_inclusion_a_denied_change_runs",
    ),
    "a snapshot of the log hides a ban": (
        "test_ban_cannot_be_removed_with_a_snapshot_without_it",
        "test_without_the_mac_a_snapshot_without_the_ban_hides_that_it_was_removed",
    ),
    "a loss of the log is excused by a forged number": (
        "TestAcknowledgedLosses::test_change_log_with_lost_entries_is_broken_until_acknowledged",
        "TestAcknowledgedLosses::test_loss_without_a_number_of_entries_would_excuse_any_loss",
    ),
    # Secrets and what is installed.
    "a secret appears in a log, a page or a message": (
        "test_secret_canaries_are_redacted_in_every_log_and_database",
        "test_without_the_redactor_every_secret_canary_is_found",
    ),
    "a token is forged in the database": (
        "TestForgedRows::test_forged_session_link_or_token_grants_no_access",
        "TestForgedRows::test_without_the_row_mac_a_forged_session_link_or_token_grants_access",
    ),
    "a sealed secret is moved to another person": (
        "test_factor_secret_moved_to_another_person_cannot_be_decrypted",
        "test_without_the_sealed_context_a_moved_factor_secret_is_decrypted",
    ),
    "others can read a key file": (
        "TestKeyFiles::test_start_is_refused_when_others_can_read_the_key",
        "TestKeyFiles::test_without_exclusive_creation_a_key_file_is_readable_by_others",
    ),
    "the encryption of secrets does nothing": (
        "test_start_is_refused_when_the_secret_box_does_not_encrypt",
    ),
    "a package other than the locked one is installed": (
        "test_every_requirements_file_is_locked_with_hashes",
        "test_requirement_without_a_hash_is_found",
    ),
}


@cache
def find_tests() -> frozenset[str]:
    """Return the names of all tests, with their class where they are in one."""
    names: set[str] = set()
    for file in TESTS.rglob("test_*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                names |= {
                    f"{node.name}::{test.name}"
                    for test in node.body
                    if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef)
                }
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
    return frozenset(names)


@pytest.mark.parametrize("threat", THREATS)
def test_every_threat_has_its_tests(threat: str):
    missing = [test for test in THREATS[threat] if test not in find_tests()]
    assert not missing, f"write a test that shows that it fails: {threat}"
