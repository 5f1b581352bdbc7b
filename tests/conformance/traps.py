"""The 16 traps of the present one-shot runner and its gateway (section 13 of its contract), each with its repair."""

from __future__ import annotations

from tests.conformance.beaten import Row

RUN = "tests/e2e/test_oneshot_run.py"
ARTIFACTS = "tests/e2e/test_oneshot_artifacts.py"
LEASES = "tests/e2e/test_oneshot_leases.py"
KIT_RUNS = "tests/conformance/oneshot/test_runs.py"
KIT_ARTIFACTS = "tests/conformance/oneshot/test_artifacts.py"
KIT_REQUESTS = "tests/conformance/oneshot/test_requests.py"
KIT_LEASES = "tests/conformance/oneshot/test_leases.py"

# fmt: off
TRAPS = (
    Row(1, "two limits of different origin", (
        f"{RUN}::test_a_run_beyond_its_time_keeps_what_there_is", f"{KIT_RUNS}::test_limits_are_clamped",
    )),
    Row(2, "the caller's patience is below the maximum", (
        "tests/unit/leases/test_config.py::test_the_limit_of_a_run",
    )),
    Row(3, "a late run loses output and files", (
        f"{RUN}::test_a_run_beyond_its_time_keeps_what_there_is",
        f"{KIT_RUNS}::test_a_late_run_is_minus_one_and_keeps_its_part",
    )),
    Row(4, "reading office files has 30 seconds", why="a time limit of the gateway's own tool"),
    Row(5, "files are carried over and then dropped", (
        f"{ARTIFACTS}::test_a_file_beyond_the_limit_is_named_and_not_sent",
    )),
    Row(6, "a file of 25 MiB takes 80 seconds", (
        f"{ARTIFACTS}::test_two_files_of_25_mib_come_within_seconds",
        f"{KIT_ARTIFACTS}::test_a_file_of_25_mib_comes_whole",
    )),
    Row(7, "egress is asked for once", why="the gateway asks once; health answers at any time"),
    Row(8, "no queue for runs at a time", (
        f"{RUN}::test_runs_at_once_wait_a_little_for_a_place",
        f"{KIT_REQUESTS}::test_seven_parallel_runs_all_come_out",
    )),
    Row(9, "delete reaches any container", (
        f"{LEASES}::test_delete_reaches_only_what_run_has_given",
        f"{KIT_REQUESTS}::test_delete_is_204_for_anything_and_takes_only_what_was_issued",
    )),
    Row(10, "an output that has an input's name is lost", (
        f"{ARTIFACTS}::test_an_output_that_has_the_name_of_an_input_comes_back",
    )),
    Row(11, "a package's version differs in a text", why="the text is of the gateway's tool"),
    Row(12, "empty files look like none", (
        f"{ARTIFACTS}::test_empty_files_are_told_of",
    )),
    Row(13, "a large structure cannot be read, leases lose inputs", (
        f"{ARTIFACTS}::test_long_output_is_shortened_and_a_file", f"{LEASES}::test_as_many_leases_as_may_be",
        f"{KIT_LEASES}::test_video_in_two_passes_of_one_lease",
    )),
    Row(14, "names between double quotes are expanded",
        why="the command line is written by the gateway; its effect stays in the sandbox"),
    Row(15, "the size is what the sandbox says", (
        f"{ARTIFACTS}::test_new_files_with_name_size_type_and_bytes",
        f"{KIT_ARTIFACTS}::test_nested_files_come_flat_with_their_path",
    )),
    Row(16, "staged files against the limit of a body", (
        f"{RUN}::test_bodies_beyond_96_mib", f"{RUN}::test_inputs_of_40_mib_arrive",
        f"{KIT_REQUESTS}::test_fifty_mib_of_files_go_in",
    )),
)
# fmt: on
