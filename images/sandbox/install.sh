#!/usr/bin/env bash
# Fills a bare Debian 13 file system with the content of the sandbox: install.sh GROUP...
#
# Runs as root inside that file system, for the root file system build and for Dockerfile.sandbox alike.
# GROUP names a list apt/GROUP.txt beside this script; `core` comes always first.
#
# Environment, all optional:
#   FOLIOBOX_BUILD_CACHE  folder that outlives the build; keeps downloads, so that an interrupted one resumes
#   FOLIOBOX_BUILD_CA     CA bundle used for downloads only; nothing of it stays in the image
#   FOLIOBOX_CERTS        folder with *.crt files that the image shall trust for good (default ../certs)
#   FOLIOBOX_IMAGE_HASH   content hash, for the version record
#   SOURCE_DATE_EPOCH     build date, for the version record and the time stamps of font folders
set -euo pipefail
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
groups=(core)
for group in "$@"; do [[ $group == core ]] || groups+=("$group"); done

suite=trixie
venv=/opt/venv
sandbox_id=10001
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(date +%s)}

say() { printf '== %s\n' "$*"; }
die() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

# Package names of the chosen groups, one a line.
package_names() {
    local group
    for group in "${groups[@]}"; do
        [[ -f $here/apt/$group.txt ]] || die "no such group: $group (there is no apt/$group.txt)"
        sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$here/apt/$group.txt"
    done
}

apt_options=(-y -q -o Acquire::Retries=3 -o APT::Install-Recommends=false -o APT::Install-Suggests=false
    -o Dpkg::Use-Pty=0 -o APT::Get::AllowUnauthenticated=false)
if [[ -n ${FOLIOBOX_BUILD_CACHE:-} ]]; then
    mkdir -p "$FOLIOBOX_BUILD_CACHE/apt/partial" "$FOLIOBOX_BUILD_CACHE/pip"
    chown -R _apt "$FOLIOBOX_BUILD_CACHE/apt/partial" # the account that apt downloads with
    apt_options+=(-o "Dir::Cache::archives=$FOLIOBOX_BUILD_CACHE/apt" -o APT::Keep-Downloaded-Packages=true)
    export PIP_CACHE_DIR=$FOLIOBOX_BUILD_CACHE/pip
fi
if [[ -n ${FOLIOBOX_BUILD_CA:-} ]]; then
    apt_options+=(-o "Acquire::https::CAInfo=$FOLIOBOX_BUILD_CA")
    export PIP_CERT=$FOLIOBOX_BUILD_CA SSL_CERT_FILE=$FOLIOBOX_BUILD_CA
fi

# Settings that hold only while packages are installed; `tidy` removes them.
prepare_dpkg() {
    cat >/etc/dpkg/dpkg.cfg.d/foliobox-build <<'CONF'
force-unsafe-io
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/lintian/*
path-exclude=/usr/share/locale/*
path-include=/usr/share/locale/locale.alias
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/gtk-doc/*
path-exclude=/usr/share/icons/*
path-exclude=/usr/share/bash-completion/*
path-exclude=/usr/share/zsh/*
# The one file of poppler-data under the AGPL; no reader here asks for it.
path-exclude=/usr/share/*/Identity-UTF16-H
path-exclude=/var/lib/ghostscript/*
# Software OpenGL, 200 MB that ffmpeg's link to libGL pulls in; it is loaded only by programs with windows.
path-exclude=/usr/lib/*/libLLVM.so*
path-exclude=/usr/lib/*/libLLVM-*
path-exclude=/usr/lib/*/libgallium-*
path-exclude=/usr/lib/*/libz3.so*
# For those who debug a browser's graphics, 24 MB.
path-exclude=/usr/lib/chromium/libVkLayer*
CONF
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
}

install_debian() {
    local names
    mapfile -t names < <(package_names | sort -u)
    say "Debian packages: ${#names[@]} named, groups ${groups[*]}"
    grep -q "^VERSION_CODENAME=$suite$" /etc/os-release || die "this is not Debian $suite"
    prepare_dpkg
    apt-get "${apt_options[@]}" update
    apt-get "${apt_options[@]}" upgrade
    apt-get "${apt_options[@]}" install --download-only "${names[@]}"
    say "Debian packages: unpacking"
    apt-get "${apt_options[@]}" install "${names[@]}"
    if dpkg-query -W -f '${Package}\n' | grep -E '^(ghostscript|libgs[0-9]|libgs-common|fonts-urw-base35)'; then
        die 'a package under the AGPL was pulled in (named above): remove what depends on it from the lists'
    fi
}

# Called by its link, LibreOffice's starter looks with `ls -l` where it lies. gVisor of 2022, which Debian 12 has, cannot
# answer the `ls` of Debian 13 (statx with AT_NO_AUTOMOUNT), so the links become scripts that name the place.
place_starters() {
    local name real=/usr/lib/libreoffice/program/soffice
    for name in soffice libreoffice; do
        [[ -L /usr/bin/$name && /usr/bin/$name -ef $real ]] || continue
        rm "/usr/bin/$name"
        printf '#!/bin/sh\nexec %s "$@"\n' "$real" >"/usr/bin/$name"
        chmod 755 "/usr/bin/$name"
    done
}

# CAs that the owner of the deployment wants trusted inside sandboxes as well.
install_certificates() {
    local folder=${FOLIOBOX_CERTS:-$here/../certs} found=()
    [[ -d $folder ]] && mapfile -t found < <(find "$folder" -maxdepth 1 -name '*.crt' | sort)
    [[ ${#found[@]} -gt 0 ]] || return 0
    say "certificates: ${#found[@]} from the certs folder"
    install -m 644 -t /usr/local/share/ca-certificates "${found[@]}"
    update-ca-certificates
    export PIP_CERT=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}
}

# The lock of the stack, and those of groups that have one of their own: python-GROUP.lock.
locks() {
    local group
    printf '%s\n' "$here/python.lock"
    for group in "${groups[@]}"; do
        [[ $group == build || ! -f $here/python-$group.lock ]] || printf '%s\n' "$here/python-$group.lock"
    done
}

install_python() {
    local wheels=${FOLIOBOX_BUILD_CACHE:-/tmp}/wheels lock=/tmp/python.lock
    local pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-compile
        --progress-bar off --root-user-action ignore --require-hashes)
    locks | xargs cat >"$lock"
    say "Python packages: $(grep -c '==' "$lock") locked"
    python3 -m venv "$venv"
    "${pip[@]}" --retries 5 -r "$here/python-build.lock"
    "$venv/bin/python" "$here/fetch.py" "$lock" "$wheels"
    say "Python packages: installing"
    "${pip[@]}" --no-deps --no-index --find-links "$wheels" --no-build-isolation -r "$lock"
    "$venv/bin/python" -m pip --disable-pip-version-check check
    local uno=/usr/lib/python3/dist-packages site
    site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    if [[ -f $uno/uno.py ]]; then
        ln -s "$uno/uno.py" "$uno/unohelper.py" "$site/"
    fi
    # Test suites of libraries: nobody runs them here. Those of numpy stay: numpy.testing imports from them.
    rm -rf "$site"/{pandas,matplotlib,pyarrow,seaborn}/tests
    find "$site"/{scipy,sympy,statsmodels,sklearn,networkx} -type d -name tests -prune -exec rm -rf {} +
}

# Own commands, stubs of what is left out, and the browser where Playwright looks for it. All run isolated, so that a
# user's file named like a module is never taken for it.
install_commands() {
    local name site python="$venv/bin/python -I -m foliobox_commands" browser=/usr/lib/chromium/chromium-headless-shell
    say "commands"
    site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    install -d -m 755 "$site/foliobox_commands"
    install -m 644 -t "$site/foliobox_commands" "$here"/commands/*.py
    for name in typst excalirender; do
        printf '#!/bin/sh\nexec %s.%s "$@"\n' "$python" "$name" >"/usr/local/bin/$name"
        chmod 755 "/usr/local/bin/$name"
    done
    $python.absent /usr/local/bin "$site"
    if [[ -x $browser ]]; then
        printf '#!/bin/sh\nexec %s "$@"\n' "$browser" >/usr/local/bin/chromium
        chmod 755 /usr/local/bin/chromium
        $python.browser /opt/pw
    fi
}

# The tree is mounted read-only, so Python could never write these later. `unchecked-hash` does not depend
# on time stamps, which archives and image layers round.
compile_python() {
    say "bytecode"
    local folders=("$venv/lib" /usr/lib/python3) extra=/usr/lib/libreoffice/program
    [[ -d $extra ]] && folders+=("$extra")
    "$venv/bin/python" -m compileall -q -f -j 0 --invalidation-mode unchecked-hash "${folders[@]}" \
        >/dev/null 2>&1 || true
}

make_user() {
    say "user and mount points"
    groupadd --gid "$sandbox_id" sandbox
    useradd --uid "$sandbox_id" --gid "$sandbox_id" --home-dir /home/sandbox --no-create-home \
        --shell /bin/bash sandbox
    install -d -m 755 -o "$sandbox_id" -g "$sandbox_id" /home/sandbox /workspace
    ln -sfn /workspace /work
    ln -sfn /usr/share/zoneinfo/Etc/UTC /etc/localtime
    cat >/etc/profile.d/foliobox.sh <<'CONF'
PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin
export PATH
CONF
}

# A font cache is taken as current while the time stamp of each font folder is the one it names. Archives
# keep whole seconds only, so the stamps are set to one before the cache is made.
build_font_cache() {
    say "font cache"
    install -m 644 -t /etc/fonts/conf.d "$here"/etc/fonts/*.conf
    # LibreOffice adds two folders of its own, and one of them need not exist.
    local office=/usr/lib/libreoffice folders=(/usr/share/fonts /usr/local/share/fonts) extra=()
    if [[ -d $office ]]; then
        extra=("$office/share/fonts/truetype" "$office/program/resource/common/fonts")
        mkdir -p "${extra[@]}"
    fi
    # -L: some font folders are links to folders elsewhere, and it is those whose stamps count.
    find -L "${folders[@]}" "${extra[@]}" -type d -exec touch --date="@$SOURCE_DATE_EPOCH" {} +
    rm -rf /var/cache/fontconfig/*
    fc-cache --system-only --force "${folders[@]}" "${extra[@]}"
}

build_matplotlib_cache() {
    local folder=/opt/foliobox/matplotlib
    say "matplotlib defaults and font list"
    install -d -m 755 "$folder"
    MPLCONFIGDIR=$folder MPLBACKEND=Agg "$venv/bin/python" "$here/matplotlib/prepare.py" "$folder"
    find "$folder" -mindepth 1 ! -name 'fontlist-*.json' -delete
}

tidy() {
    say "tidying"
    apt-get "${apt_options[@]}" autoclean
    apt-get clean
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/* \
        /var/backups/* /tmp/* /var/tmp/* /root/.cache /root/.config /etc/dpkg/dpkg.cfg.d/foliobox-build \
        /usr/sbin/policy-rc.d /etc/machine-id /var/lib/dbus/machine-id /etc/.pwd.lock \
        /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /var/cache/ldconfig
    # What the base brought before the exclusions were in force; copyright files stay.
    find /usr/share/doc -mindepth 2 ! -name copyright ! -type d -delete
    find /usr/share/doc -mindepth 1 -type d -empty -delete
    rm -rf /usr/share/man/* /usr/share/info/* /usr/share/lintian /usr/share/icons /usr/share/bash-completion
    find /usr/share/locale -mindepth 1 ! -name locale.alias -delete 2>/dev/null || true
    find /opt/venv/share -path '*/man/*' -delete 2>/dev/null || true
}

# No file may raise privileges, and every account must be able to read the tree.
drop_privileges() {
    say "permissions"
    find / -xdev -type f -perm /6000 -exec chmod a-s {} +
    find / -xdev -type d -perm /6000 -exec chmod a-s {} +
    "$venv/bin/python" - <<'PY'
import os
for folder, _, names in os.walk("/"):
    if folder == "/":
        _[:] = [d for d in _ if d not in {"proc", "sys", "dev", "run"}]
    for name in names:
        path = os.path.join(folder, name)
        if not os.path.islink(path) and "security.capability" in os.listxattr(path):
            os.removexattr(path, "security.capability")
PY
    find / -xdev \( -type d ! -perm -0555 -o -type f ! -perm -0444 \) -exec chmod a+rX {} +
}

write_record() {
    say "version record"
    install -d -m 755 /etc/foliobox
    "$venv/bin/python" "$here/record.py" --suite "$suite" --groups "${groups[*]}" \
        --hash "${FOLIOBOX_IMAGE_HASH:-unknown}" --out /etc/foliobox/image.json
}

install_debian
place_starters
install_certificates
install_python
install_commands
make_user
build_font_cache
build_matplotlib_cache
compile_python
write_record
tidy
drop_privileges
say "done"
