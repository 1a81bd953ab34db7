"""Every attack that Keyturn claims to stop has a test, and most have a twin that shows the danger.

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
        "TestWho::test_approval_is_refused_when_requester_approves",
        "TestWho::test_the_requester_would_approve_without_the_comparison",
    ),
    "the owner of an agent, or its person, approves what it requests": (
        "test_gate_refuses_approval_of_the_owner",
        "test_approval_of_the_owner_would_count_without_the_guard",
    ),
    "one approval counts twice, or starts two runs": (
        "TestWho::test_one_person_counts_once_when_they_approve_often",
        "test_without_the_guard_a_run_is_put_to_work_twice",
    ),
    "an approval overtakes a denial": (
        "TestANo::test_a_denial_wins_over_an_approval_until_something_is_sent",
        "TestANo::test_without_the_log_the_vote_alone_wins",
    ),
    "an approval counts after it expired": (
        "TestInTime::test_an_approval_does_not_count_when_the_request_expired",
        "TestInTime::test_without_the_guard_it_would_have_counted",
    ),
    "an approver who lost the role counts": (
        "TestAuthority::test_an_approval_does_not_count_when_the_approver_lost_the_role",
        "TestAuthority::test_a_former_owners_approval_would_count_without_the_guard",
    ),
    "a requester who lost the role goes on": (
        "TestMidway::test_no_further_host_is_reached_when_the_requester_loses_the_role",
        "TestMidway::test_every_host_would_be_reached_without_the_guard",
    ),
    "rows are altered so that something else is approved": (
        "TestForged::test_forged_rows_approve_nothing",
        "TestForged::test_without_the_comparison_it_would",
    ),
    "something else is sent than was shown": (
        "TestWhatWasShown::test_a_runbook_that_was_changed_after_the_approval_does_nothing",
        "TestWhatWasShown::test_without_the_guard_it_would_have",
    ),
    "two changes take both legs of a service": (
        "test_two_runs_never_take_both_legs",
        "test_two_runs_would_take_both_legs_without_the_claims",
    ),
    "the guard opens while nothing can be checked": (
        "test_no_leg_of_a_cut_set_is_allowed_while_everything_is_unknown",
        "test_guard_that_compared_the_tree_before_and_after_would_open_when_nothing_is_known",
    ),
    "a host changed after the approval": (
        "TestWhatWasShown::test_a_host_that_moved_since_is_sent_nothing",
        "TestWhatWasShown::test_without_the_guard_it_would_have_been",
    ),
    "a late result overwrites a newer state": (
        "TestALateResult::test_a_late_result_changes_nothing_newer",
        "TestALateResult::test_a_late_result_would_overwrite_without_the_guard",
    ),
    "a button is forged": (
        "test_a_forged_button_decides_nothing",
        "test_without_the_guard_it_would_approve",
    ),
    "an approver sees only part of the plan": (
        "test_a_plan_that_chat_cannot_show_whole_cannot_be_approved_there",
        "test_without_the_guard_it_would_be_approved_at_a_length_that_chat_cuts",
    ),
    "a schedule fires without its owner or its approval": (
        "TestAnApprovalThatLapsed::test_a_schedule_does_not_fire_when_its_approval_lapsed",
        "TestAnApprovalThatLapsed::test_a_lapsed_schedule_would_fire_without_the_guard",
    ),
    "a broken policy lets things through": (
        "TestABrokenPolicy::test_nothing_approved_before_runs_when_the_policy_is_broken",
        "TestABrokenPolicy::test_it_would_run_if_the_last_good_policy_were_used",
    ),
    "a route or command has no guard": (
        "test_every_route_is_in_the_table",
        "test_a_route_that_is_missing_in_the_table_is_found",
    ),
    "break-glass is used without a reason, a factor or a review": (
        "test_break_glass_is_refused_until_another_person_reviewed_the_last",
        "TestGuards::test_break_glass_would_go_unreviewed_without_the_guard",
    ),
    "a change runs in a freeze": (
        "TestAFreeze::test_a_due_time_is_skipped_when_a_freeze_holds",
        "TestAFreeze::test_a_due_time_would_fire_in_a_freeze_without_the_guard",
    ),
    "a bad change reaches all hosts at once": (
        "test_after_the_first_failure_no_further_wave_starts",
        "test_without_waves_every_host_would_be_reached",
    ),
    "one person floods the service": (
        "TestPace::test_requests_are_limited_for_each_person",
        "TestPace::test_requests_would_be_unlimited_without_the_guard",
    ),
    "a banned person goes on": (
        "TestBans::test_a_ban_in_the_middle_stops_before_the_next_step",
        "TestBans::test_without_the_guard_the_next_step_would_have_been_sent",
    ),
    "an own runbook runs with a file that two people have not enabled": (
        "test_an_own_runbook_is_refused_until_two_people_have_enabled_it",
        "test_an_own_runbook_would_run_without_the_guard",
    ),
    # The change log.
    "something is done while the log cannot be written": (
        "TestALogThatTakesNothing::test_nothing_is_sent_when_the_log_cannot_be_written",
        "TestALogThatTakesNothing::test_a_change_would_go_unrecorded_without_the_guard",
    ),
    "the database freezes": (
        "test_a_frozen_database_refuses_the_run_before_any_packet",
        "test_callers_would_wait_for_good_without_the_watch",
    ),
    "the log breaks while a run executes": (
        "test_a_log_that_breaks_within_a_run_stops_it_and_what_is_known_is_merged",
        "test_the_end_of_a_step_would_be_lost_without_the_spool",
    ),
    "an entry is inserted, deleted, reordered or edited": (
        "test_whatever_is_inserted_deleted_reordered_or_edited_is_found",
        "test_a_mutation_is_not_found_by_who_does_not_look",
    ),
    "the end of the log is cut off": ("test_a_cut_tail_is_found_by_a_witness",),
    "the log is forked": ("test_a_fork_is_found_by_a_witness",),
    "the log is signed anew with another key": (
        "test_a_log_signed_anew_is_found_by_its_other_key",
        "TestAnOlderKey::test_without_the_links_it_would",
    ),
    "the service's own database role rewrites the log": (
        "test_what_would_change_the_log_is_refused",
        "test_without_the_guard_the_owner_rewrites_the_log",
    ),
    "two writers make two chains": (
        "test_a_writer_with_an_old_head_makes_no_fork",
        "test_without_the_line_and_the_key_there_would_be_a_fork",
    ),
    "one person erases output": (
        "TestErasure::test_erasure_takes_two_persons",
        "TestErasure::test_one_person_would_erase_without_the_guard",
    ),
    "the service signs on top of a rewritten log": (
        "TestHistoryRewritten::test_the_service_signs_nothing_on_top_of_it",
        "TestHistoryRewritten::test_without_the_look_at_the_head_it_would_sign",
    ),
    "a forged entry is covered by a rotation of the key": (
        "TestRotation::test_the_key_is_not_changed",
        "TestRotation::test_a_forged_approval_would_open_without_both_guards",
    ),
    "a denial or ban is taken out of the log": (
        "TestTakenOut::test_a_denied_change_does_not_run",
        "TestTakenOut::test_a_denied_change_would_run_without_the_known_head",
    ),
    "a loss of the log is excused by a forged number": (
        "TestLosses::test_a_log_with_a_loss_is_broken_until_a_person_acknowledges_it",
        "TestLosses::test_without_the_number_it_would_be_excused",
    ),
    # Secrets and what is installed.
    "a secret appears in a log, a page or a message": (
        "test_no_sink_holds_a_canary",
        "test_without_the_guard_every_canary_is_found",
    ),
    "a token is forged in the database": (
        "TestForged::test_a_forged_token_opens_nothing",
        "TestForged::test_a_forged_token_would_open_without_the_row_mac",
    ),
    "a sealed secret is moved to another person": (
        "test_a_secret_that_was_moved_to_another_person_does_not_open",
        "test_a_moved_secret_would_open_without_the_guard",
    ),
    "others can read a key file": (
        "TestKeys::test_start_is_refused_when_others_can_read_the_key",
        "TestKeys::test_without_the_guard_others_could_read_it",
    ),
    "the encryption of secrets does nothing": (
        "test_start_is_refused_when_the_secret_box_does_not_encrypt",
    ),
    "a package other than the locked one is installed": (
        "test_every_file_of_requirements_is_locked_with_hashes",
        "test_a_requirement_without_a_hash_is_found",
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
def test_an_attack_has_its_tests(threat: str):
    missing = [test for test in THREATS[threat] if test not in find_tests()]
    assert not missing, f"write a test that shows that it fails: {threat}"
