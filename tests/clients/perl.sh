#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	perl -e '
open my $f, ">", "f" or die; print $f "line $_\n" for 1..5000; close $f or die;
open $f, "<", "f" or die; my @l = <$f>; @l == 5000 or die; close $f;
open $f, ">", "ctl/exec" or die; print $f "wc -l f\n"; close $f or die;
open $f, "<", "ctl/stdout" or die; <$f> =~ /^5000/ or die; close $f;
rename "f", "g" or die; -s "g" or die; unlink "g" or die;'
	cp README.md p
	perl -pi -e 's/hello/changed/' p
	same changed "$(cat p)"
}

reports() {
	perl -e '
use Errno; $| = 1;
open my $f, ">", "ctl/exec" or die; my $ok = syswrite $f, "no-such-program\n";
exit(!defined $ok && $!{ENOENT} ? 0 : 1)'
	refuse perl -e 'open my $f, ">", "ctl/exec" or die; print $f "a | b\n"; close $f or exit 1'
}

begin perl
claim "perl writes, reads, edits in place, runs commands" works
claim "perl reports what failed" reports
end
