"""Addresses that a guard must not follow: those that programs read in different ways, and those that are not public."""

from __future__ import annotations

REFUSED = [
    # numbers for hosts
    "http://2130706433/", "http://017700000001/", "http://0x7f000001/", "http://0x7f.1/", "http://127.1/",
    "http://127.0.1/", "http://0177.0.0.1/", "http://0x7f.0.0.1/", "http://127.0.0.01/", "http://127.0.0.0x1/",
    "http://00.0.0.0/", "http://0/", "http://256.1.1.1/", "http://1.1.1.256/", "http://1.2.3.4.5/",
    "http://4294967295/", "http://0x/", "http://foo.0x1/", "http://foo.1/", "http://127.0.0.1../",
    "http://0300.0250.1.1/", "http://3232235777/", "http://169.254.43518/", "http://0xa9fea9fe/",
    # other scripts and encodings
    "http://１２７.0.0.1/", "http://①②⑦.⓪.⓪.①/", "http://127。0。0。1/", "http://127．0．0．1/", "http://%31%32%37.0.0.1/",
    "http://127%2e0%2e0%2e1/", "http://loc%61lhost/", "http://lo\u00adcalhost/", "http://ｌｏｃａｌｈｏｓｔ/",
    "http://localho\u017ft/", "http://exa\u200bmple.com/\u0000", "http://xn--/", "http://\ud800.example/",
    # brackets and zones
    "http://[::1%25eth0]/", "http://[fe80::1%eth0]/", "http://[::1/", "http://::1/", "http://[::1]x/",
    "http://[127.0.0.1]/", "http://[]/", "http://[::ffff:127.0.0.1%1]/", "http://[v1.fe80::a]/", "http://[[::1]]/",
    # user information, other parsers' hosts
    "http://user@example.com/", "http://user:pw@example.com/", "http://example.com@127.0.0.1/",
    "http://127.0.0.1@example.com/", "http://example.com\\@127.0.0.1/", "http://example.com\\.internal.example/",
    "http:\\\\127.0.0.1\\", "http://example.com:80@127.0.0.1/", "http://@/", "http:///path", "http://", "http://:80/",
    # white space and control characters
    "http://127.0.0.1\t/", "http://exam\tple.com/", "http://example.com/a b", "http://example.com/\r\nX: y",
    "http://example.com\n.internal/", " http://example.com/", "http://example.com/\x00", "http://example.com/\x7f",
    # schemes
    "file:///etc/passwd", "ftp://example.com/", "gopher://example.com/", "javascript:alert(1)", "data:image/png,x",
    "HTTP//example.com", "//example.com/", "example.com", "/etc/passwd", "", "dict://example.com:80/", "unix:///run",
    "ws://example.com/", "http:example.com", "http:/example.com", "jar:http://example.com!/", "blob:http://example.com",
    # ports
    "http://example.com:22/", "http://example.com:8080/", "http://example.com:0/", "http://example.com:65536/",
    "http://example.com:99999/", "http://example.com:-80/", "http://example.com:+80/", "http://example.com:80:80/",
    "http://example.com:8０/", "http://example.com:6379/", "http://example.com:2375/", "http://example.com:080000/",
    # names of local networks, malformed names
    "http://localhost/", "http://LOCALHOST./", "http://foo.localhost/", "http://printer.local/",
    "http://metadata.google.internal/", "http://router.home.arpa/", "http://intranet/", "http://redis/",
    "http://x.onion/", "http://-a.example/", "http://a..example/", "http://a-.example/",
    "http://" + "a" * 64 + ".example/", "http://" + "a." * 130 + "example/", "http://ex ample.com/",
    "http://example.com/" + "a" * 9000,
    "http://*.example/",
]  # fmt: skip
NOT_PUBLIC = [
    "http://127.0.0.1/", "http://127.0.0.1./", "HTTP://127.0.0.1", "http://[::1]/", "http://[::]/", "http://0.0.0.0/",
    "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[0:0:0:0:0:ffff:a00:1]/", "http://[::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b:1::7f00:1]/", "http://[2002:7f00:1::]/", "http://[fe80::1]/",
    "http://[fec0::1]/", "http://[fd00:ec2::254]/", "http://169.254.169.254/latest/meta-data/", "http://10.0.0.1:443/",
    "https://192.168.0.1/", "http://172.17.0.1/", "http://100.100.100.200/", "http://255.255.255.255/",
    "http://[ff02::1]/", "http://224.0.0.1/", "http://[2001:db8::1]/", "http://192.0.0.192/", "http://168.63.129.16/",
    "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]/", "http://[::FFFF:0A00:0001]/", "http://240.0.0.1/",
]  # fmt: skip
