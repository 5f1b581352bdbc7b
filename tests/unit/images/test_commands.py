"""Command lines and environments of the build."""

from __future__ import annotations

from pathlib import Path

from images.rootfs import commands


def test_user_gets_subordinate_ids_and_root_does_not() -> None:
    assert "--map-auto" in commands.namespace(1000)
    assert "--map-auto" not in commands.namespace(0)
    for user_id in (0, 1000):
        prefix = commands.namespace(user_id)
        assert prefix[0] == "unshare"
        assert {"--mount", "--pid", "--fork", "--kill-child"} <= set(prefix)
        assert prefix[-1] == "--"


def test_bootstrap_names_a_mirror_only_when_one_is_set() -> None:
    default = commands.bootstrap("mmdebstrap", "trixie", Path("/c/base.tar"), "", 0)
    assert default[-2:] == ["trixie", "/c/base.tar"]
    assert "--mode=root" in default
    own = commands.bootstrap("mmdebstrap", "trixie", Path("/c/base.tar"), "http://mirror.test/debian", 1000)
    assert own[-1] == "http://mirror.test/debian"
    assert "--mode=unshare" in own
    assert own[0] == "mmdebstrap"  # it makes namespaces of its own
    folder = commands.bootstrap("debootstrap", "trixie", Path("/c/t"), "", 0)
    for command, tool in ((default, "mmdebstrap"), (folder, "debootstrap")):
        assert command[: len(commands.namespace(0)) + 1] == [*commands.namespace(0), tool]


def test_pip_config_is_read_as_pip_prints_it() -> None:
    text = "global.index-url='https://one.test/simple'\n:env:.timeout='20'\nnot a setting\n"
    assert commands.parse_pip_config(text) == {"index-url": "https://one.test/simple", "timeout": "20"}


def test_pip_settings_prefer_the_environment_and_leave_out_local_places() -> None:
    configured = {
        "index-url": "https://file.test/simple",
        "extra-index-url": "file:///opt/simple https://two.test/simple",
    }
    found = commands.pip_environment({"PIP_INDEX_URL": "https://env.test/simple"}, configured)
    assert found == {
        "PIP_INDEX_URL": "https://env.test/simple",
        "PIP_EXTRA_INDEX_URL": "https://two.test/simple",
    }


def test_only_named_settings_enter_the_build() -> None:
    host = {"HOME": "/home/me", "SECRET": "x", "https_proxy": "http://p.test:3", "LD_PRELOAD": "/x.so"}
    inside = commands.chroot_environment(host, {"PIP_INDEX_URL": "u"}, "abc", 12)
    assert "SECRET" not in inside
    assert "LD_PRELOAD" not in inside
    assert inside["HOME"] == "/root"
    assert inside["https_proxy"] == "http://p.test:3"
    assert inside["PIP_INDEX_URL"] == "u"
    assert inside["SOURCE_DATE_EPOCH"] == "12"
    assert commands.chroot_environment({"SOURCE_DATE_EPOCH": "7"}, {}, "abc", 12)["SOURCE_DATE_EPOCH"] == "7"


def test_ca_bundle_is_the_first_that_exists(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.crt"
    bundle.write_text("x")
    assert commands.ca_bundle({"PIP_CERT": "/nowhere", "SSL_CERT_FILE": str(bundle)}, {}) == bundle
    assert commands.ca_bundle({}, {"cert": str(bundle)}) == bundle
    assert commands.ca_bundle({}, {}, system=bundle) == bundle
    assert commands.ca_bundle({}, {}, system=tmp_path / "none") is None
