#!/usr/bin/env perl
# hello.pl MNT: a sandbox from Perl, with nothing but files.
use strict;
use warnings;

sub spew {
    my ($path, $text) = @_;
    open my $f, '>', $path or die "$path: $!";
    print $f $text;
    close $f or die "$path: $!";
}

sub slurp {
    my ($path) = @_;
    open my $f, '<', $path or die "$path: $!";
    local $/;
    return scalar <$f>;
}

my $box = "$ARGV[0]/hello-pl-$$";
mkdir $box or die "$box: $!";
spew "$box/greeting", "Hello from Perl\n";
spew "$box/ctl/exec", '["sh", "-c", "cat greeting; exit 3"]';
print slurp "$box/ctl/stdout";
my ($code, $how) = split ' ', slurp "$box/ctl/status";
print "$how with $code\n";
rmdir $box or die "$box: $!";
