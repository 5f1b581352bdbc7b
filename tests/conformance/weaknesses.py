"""The 73 weaknesses of the present sessions runner and its gateway (section 16 of its contract) and their proofs."""

from __future__ import annotations

from tests.conformance.beaten import Row

LIFE = "tests/e2e/test_sessions_life.py"
FAULTS = "tests/e2e/test_sessions_faults.py"
MORE = "tests/e2e/test_sessions_more.py"
PROTOCOL = "tests/e2e/test_sessions_protocol.py"
SAFETY = "tests/e2e/test_sessions_safety.py"
OBJECTS = "tests/e2e/test_sessions_objects.py"
ARCHIVES = "tests/integration/objects/test_archives.py"
RESTORE = "tests/integration/objects/test_restore.py"
HOSTS = "tests/integration/objects/test_hosts.py"
STORES = "tests/integration/objects/test_objects.py"
TROUBLE = "tests/integration/objects/test_trouble.py"
KIT_TALK = "tests/conformance/sessions/test_conversation.py"
KIT_RECOVERY = "tests/conformance/sessions/test_recovery.py"
KIT_ARCHIVES = "tests/conformance/sessions/test_archives.py"
KIT_LIMITS = "tests/conformance/sessions/test_limits.py"
KIT_PATHS = "tests/conformance/sessions/test_paths.py"
KIT_ROWS = "tests/conformance/sessions/test_rows.py"

# fmt: off
WEAKNESSES = (
    Row(1, "variables vanish between calls", (
        f"{LIFE}::test_variables_imports_and_figures_live_on",
        f"{KIT_TALK}::test_variables_imports_and_modules_of_the_workspace_stay",
    )),
    Row(2, "who returns during teardown starts empty", (
        f"{LIFE}::test_create_during_teardown_finds_everything",
        f"{LIFE}::test_a_reaped_session_answers_as_a_live_one", f"{ARCHIVES}::test_who_reads_waits_for_who_writes",
        f"{KIT_RECOVERY}::test_an_idle_session_is_reclaimed_and_its_conversation_goes_on",
    )),
    Row(3, "two sessions of one archive key, the older wins", (
        f"{LIFE}::test_two_sessions_of_one_key_are_one_conversation",
        f"{ARCHIVES}::test_an_older_one_never_replaces_a_newer",
        f"{ARCHIVES}::test_of_many_who_write_at_once_one_wins", f"{FAULTS}::test_a_busy_session_is_taken_over",
    )),
    Row(4, "a restore that failed is archived as empty", (
        f"{LIFE}::test_a_restore_that_fails_is_an_error",
        f"{LIFE}::test_an_archive_that_is_damaged_is_never_replaced",
        f"{RESTORE}::test_a_restore_that_fails_is_an_error_and_leaves_the_archive",
        f"{KIT_ARCHIVES}::test_an_archive_that_cannot_be_read_is_never_written_over_by_an_empty_one",
    )),
    Row(5, "an archive that failed, and the workspace goes", (
        f"{LIFE}::test_what_cannot_be_archived_is_kept_and_told",
        f"{ARCHIVES}::test_a_write_that_fails_changes_nothing",
    )),
    Row(6, "a restart forgets lifetime, storage and key", (
        f"{LIFE}::test_a_restart_forgets_nothing",
        f"{KIT_ARCHIVES}::test_a_restart_forgets_neither_key_nor_storage",
    )),
    Row(7, "files live in memory until teardown", (
        f"{LIFE}::test_an_idle_session_is_archived", f"{LIFE}::test_a_restart_forgets_nothing",
        "tests/e2e/test_life.py::test_sigkill_of_the_service_loses_no_file",
    )),
    Row(8, "a stop neither drains nor archives", (
        f"{LIFE}::test_a_restart_forgets_nothing",
        "tests/e2e/test_life.py::test_a_stop_interrupts_runs_and_stores_their_files",
    )),
    Row(9, "what a conversation's end leaves behind", (
        f"{LIFE}::test_discard_leaves_nothing", f"{LIFE}::test_discard_by_key_of_a_session_that_is_forgotten",
        f"{KIT_ARCHIVES}::test_discard_of_a_gone_session_deletes_the_archive_of_the_key",
    )),
    Row(10, "branches share their files", (
        f"{LIFE}::test_a_branch_is_a_fork",
        "tests/e2e/test_versions.py::test_a_fork_has_the_files_and_nothing_else",
    )),
    Row(11, "one archive without versions, swept by age alone", (
        f"{LIFE}::test_collection_by_age_spares_open_sessions", f"{ARCHIVES}::test_the_one_before_is_kept",
        f"{KIT_ARCHIVES}::test_a_live_sessions_archive_is_not_swept",
    )),
    Row(12, "a full temporary folder bricks a session", (
        f"{FAULTS}::test_a_full_tmp_bricks_nothing", f"{KIT_RECOVERY}::test_a_full_folder_wedges_nothing",
    )),
    Row(13, "a full workspace bricks it too", (
        f"{FAULTS}::test_a_full_workspace_still_takes_inputs_and_code",
        f"{FAULTS}::test_more_than_fits_is_told_and_undone", f"{KIT_RECOVERY}::test_a_full_folder_wedges_nothing",
    )),
    Row(14, "a read-only folder stops every reset", (
        f"{FAULTS}::test_a_folder_without_write_permission_is_reset",
        f"{KIT_RECOVERY}::test_a_read_only_folder_among_the_inputs_does_not_stop_the_next_reset",
    )),
    Row(15, "no process left to clean up with", (
        f"{FAULTS}::test_as_many_processes_as_there_may_be",
    )),
    Row(16, "a late command loses a run that was done", (
        f"{FAULTS}::test_what_was_printed_before_the_limit_is_kept",
        "tests/integration/docker/test_daemon.py::test_a_stream_that_is_cut_is_a_lost_sandbox",
    )),
    Row(17, "a create that fails leaves a container", (
        f"{FAULTS}::test_a_session_that_cannot_start_leaves_nothing",
        "tests/integration/docker/test_daemon.py::test_a_daemon_that_hangs_in_a_start_leaves_nothing_for_good",
    )),
    Row(18, "timeouts and memory are guessed from exit codes", (
        f"{FAULTS}::test_an_exit_with_124_is_no_timeout", f"{FAULTS}::test_memory_and_signals_are_told",
        f"{KIT_RECOVERY}::test_a_cell_that_ignores_signals_is_late_too",
        f"{KIT_RECOVERY}::test_exit_124_of_its_own_is_no_late_run",
    )),
    Row(19, "the end of long output is cut off", (
        f"{FAULTS}::test_the_end_of_long_output_is_kept",
        f"{KIT_LIMITS}::test_streams_keep_their_head_and_the_end_of_an_error",
    )),
    Row(20, "an outputs folder that went is never collected again", (
        f"{FAULTS}::test_outputs_that_is_taken_away_comes_back",
        f"{KIT_TALK}::test_an_outputs_folder_that_went_away_or_became_a_link",
    )),
    Row(21, "odd paths are answered as faults", (
        f"{PROTOCOL}::test_paths_outside_are_refused", f"{PROTOCOL}::test_names_keep_their_spaces",
        f"{KIT_PATHS}::test_odd_paths_are_the_callers_fault",
    )),
    Row(22, "delete and list hide what happened", (
        f"{PROTOCOL}::test_delete_always_answers_ok",
    )),
    Row(23, "a key that is not ASCII is a fault", (
        f"{PROTOCOL}::test_a_key_outside_ascii_is_a_wrong_key", f"{KIT_ROWS}::test_every_route_wants_the_key",
    )),
    Row(24, "no events while code runs", (
        f"{MORE}::test_events_as_they_happen_in_the_same_interpreter",
    )),
    Row(25, "no cancel", (
        f"{MORE}::test_a_caller_who_leaves_ends_its_run", f"{MORE}::test_a_run_can_be_stopped_by_another_call",
    )),
    Row(26, "no input, environment or language", (
        f"{MORE}::test_input_environment_and_shell",
    )),
    Row(27, "no results but text", (
        f"{MORE}::test_values_figures_and_errors_are_data",
    )),
    Row(28, "artifacts are known by their last name", (
        f"{MORE}::test_files_of_one_name_are_told_apart", f"{FAULTS}::test_what_an_answer_leaves_out_is_named",
        f"{KIT_TALK}::test_two_artifacts_of_one_name_both_come",
    )),
    Row(29, "names with a tab or newline break the listing", (
        f"{MORE}::test_odd_names_and_rewrites_within_a_tick", f"{KIT_TALK}::test_odd_names_of_artifacts_come_whole",
        f"{KIT_TALK}::test_a_rewrite_of_the_same_size_and_time_is_a_change",
    )),
    Row(30, "types depend on the host's table", (
        f"{MORE}::test_types_do_not_depend_on_the_host", f"{KIT_TALK}::test_types_do_not_depend_on_the_host",
    )),
    Row(31, "no bulk, ranges, raw bytes or pages of files", (
        f"{MORE}::test_every_file_can_be_listed_and_fetched_in_part",
    )),
    Row(32, "no show, no get-or-create, no idempotency", (
        f"{MORE}::test_get_or_create_and_runs_that_are_not_repeated",
    )),
    Row(33, "nobody says when to come again", (
        f"{FAULTS}::test_refusals_say_when_to_come_again",
    )),
    Row(34, "a command of the engine for each step", (
        "tests/unit/bench/test_bench_targets.py::test_a_row_may_be_at_most_so_many_times_another",
        "tests/unit/bench/test_bench_targets.py::test_every_row_is_measured_and_every_measure_has_a_row",
    )),
    Row(35, "every upload travels again on every call", (
        f"{MORE}::test_a_content_that_is_there_is_not_sent_again",
    )),
    Row(36, "several whole copies of a file in memory", (
        f"{MORE}::test_large_files_pass_through_little_memory", f"{ARCHIVES}::test_an_archive_comes_back_as_it_was",
    )),
    Row(37, "every create is a cold start", (
        f"{MORE}::test_create_starts_nothing",
    )),
    Row(38, "waits add up beyond the caller's patience", (
        f"{FAULTS}::test_refusals_say_when_to_come_again",
        f"{MORE}::test_a_caller_who_leaves_while_it_waits_has_run_nothing",
    )),
    Row(39, "waiting calls starve health", (
        f"{MORE}::test_health_answers_while_many_wait",
    )),
    Row(40, "a place is held while files are collected", (
        f"{MORE}::test_a_place_is_free_when_the_run_has_ended",
    )),
    Row(41, "children hide from the sweep", (
        f"{SAFETY}::test_no_process_outlives_its_run",
        f"{KIT_RECOVERY}::test_children_that_a_run_leaves_are_gone_and_do_not_hold_it",
    )),
    Row(42, "one static key is as good as the host", (
        f"{SAFETY}::test_another_tenant_sees_no_session",
        "tests/unit/images/test_deploy.py::test_secrets_and_the_group_of_the_socket_have_no_default",
        "tests/unit/images/test_dockerfiles.py::test_the_runner_runs_as_nobody_special_and_tells_its_health",
    )),
    Row(43, "no choice of runtime", (
        "tests/contract/test_backends.py::test_the_probe_says_what_the_column_promises",
        "tests/integration/docker/test_life.py::test_auto_takes_gvisor_where_it_works",
    )),
    Row(44, "a restart adopts whatever carries the label", (
        "tests/contract/test_backends.py::test_another_deployment_sees_and_sweeps_nothing",
        "tests/integration/docker/test_life.py::test_foreign_containers_are_left_alone",
        "tests/integration/docker/test_egress.py::test_a_sandbox_with_network_goes_on_under_the_same_settings_only",
    )),
    Row(45, "folders in memory that their user cannot write", (
        "tests/integration/docker/test_posture.py::test_it_is_the_golden_one",
        f"{KIT_PATHS}::test_spellings_of_a_path",
    )),
    Row(46, "folders are made before links are judged", (
        f"{SAFETY}::test_a_path_through_a_link_is_judged_where_it_leads",
        f"{KIT_PATHS}::test_no_folders_are_made_behind_a_link_that_leaves",
    )),
    Row(47, "a body in chunks has no limit", (
        f"{SAFETY}::test_a_chunked_body_is_bounded", f"{KIT_LIMITS}::test_a_body_in_chunks_is_bounded_too",
    )),
    Row(48, "whole files are read without a cap", (
        f"{MORE}::test_large_files_pass_through_little_memory",
    )),
    Row(49, "credentials are kept, endpoints are anybody's", (
        f"{SAFETY}::test_credentials_are_never_stored_or_told",
        f"{OBJECTS}::test_no_credential_is_at_rest_or_in_the_log",
        f"{HOSTS}::test_a_host_that_is_not_listed_is_never_spoken_to",
        f"{HOSTS}::test_a_redirect_to_another_host_ends",
    )),
    Row(50, "ranges are missing in the guard of fetches", (
        "tests/unit/egress/test_addresses.py::test_a_range_is_refused_from_its_first_address_to_its_last",
        "tests/unit/egress/test_addresses.py::test_6to4_and_teredo_lead_nowhere",
        "tests/unit/egress/test_content.py::test_what_is_no_picture",
        "tests/hostile/test_fetch.py::test_nothing_else_is",
    )),
    Row(51, "programs in the workspace cannot run", (
        f"{SAFETY}::test_programs_in_the_workspace_can_be_run",
    )),
    Row(52, "put and delete mean different objects", (
        f"{STORES}::test_a_bare_key_that_begins_with_the_prefix_is_one_object_for_put_and_delete",
        f"{KIT_ARCHIVES}::test_delete_of_objects_by_bare_and_full_key",
    )),
    Row(53, "a put to local storage leaves an orphan", (
        f"{KIT_ARCHIVES}::test_put_to_local_storage_leaves_no_orphan",
        "tests/unit/objects/test_local.py::test_a_put_without_an_address_leaves_no_object",
    )),
    Row(54, "a good restore looks like a failed one", (
        f"{RESTORE}::test_an_archive_of_the_present_runner_restores",
        f"{KIT_ARCHIVES}::test_an_archive_of_the_present_runner_is_restored",
    )),
    Row(55, "a bad archive key turns persistence off in silence", (
        f"{LIFE}::test_a_key_that_cannot_be_kept_is_told", f"{ARCHIVES}::test_what_is_no_stem_is_said",
    )),
    Row(56, "parallel calls wipe each other's inputs", (
        f"{MORE}::test_inputs_and_run_are_one_step",
        f"{KIT_TALK}::test_parallel_calls_of_one_turn_each_get_their_own_answer",
    )),
    Row(57, "uploads that are skipped in silence",
        why="what is uploaded, and what the prompt lists, is chosen before a runner is called"),
    Row(58, "the exit code does not reach the model",
        why="the runner answers it; what the model is told is written by the gateway"),
    Row(59, "one artifact that is not saved loses the run",
        why="artifacts are saved after the answer, in the gateway's own store"),
    Row(60, "cuts within a character, and cuts a cut",
        why="the gateway's own cut; a stream of ours is within its limit, so that there is nothing left to cut"),
    Row(61, "a lost session is known by words",
        why="the words are the gateway's; ours say what both generations of it look for"),
    Row(62, "a tool without a context panics", why="a fault in the gateway's own process"),
    Row(63, "a stored id that cannot be read is none", why="the gateway's database"),
    Row(64, "failed tools are run again", why="the loop around the model is the gateway's"),
    Row(65, "second calls vanish, prose is executed", why="the gateway reads what its model writes"),
    Row(66, "tool output can forge the frame", why="the frame is written by the gateway"),
    Row(67, "no repair of a call's JSON", why="the gateway reads what its model writes"),
    Row(68, "no streaming to the user, no trimming", why="the gateway's own turn; events are offered"),
    Row(69, "no closing request when rounds run out", why="the loop around the model is the gateway's"),
    Row(70, "prints, no metrics, a health that proves little", (
        f"{PROTOCOL}::test_every_answer_has_an_id", "tests/e2e/test_keys.py::test_metrics_count_and_name_nobody",
        "tests/e2e/test_serve_log.py::test_start_and_stop_are_told",
    )),
    Row(71, "nothing of the service is tested", (
        "tests/conformance/sessions/test_kit.py::test_each_wrong_answer_is_caught",
        f"{KIT_ROWS}::test_each_error_of_the_section_has_its_status_and_text",
    )),
    Row(72, "moving tags, no hashes", (
        "tests/unit/images/test_content.py::test_lock_pins_everything_with_hashes_and_names_no_index",
        "tests/unit/images/test_cache.py::test_only_a_whole_archive_of_debian_is_taken",
    )),
    Row(73, "documents drift from what is done", (
        "tests/e2e/test_documentation.py::test_examples_of_the_guides",
        "tests/contract/test_settings.py::test_the_documentation_shows_the_table",
        "tests/e2e/test_documentation.py::test_every_route_is_in_a_guide",
    )),
)
# fmt: on
