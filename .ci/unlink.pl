#!/usr/bin/env perl
# Pages that are packed without the sources: a link that leads to what the folder has not becomes its text.
#
#   unlink.pl FOLDER    changes the pages below it, whose links are relative
use strict;
use warnings;
use File::Basename qw(dirname);
use File::Find qw(find);

my ($folder) = @ARGV or die "unlink.pl FOLDER\n";

sub text_or_link {
    my ($page, $text, $target) = @_;
    my ($path) = split /#/, $target;
    my $elsewhere = $target =~ m{^(?:#|[a-z]+:)};
    return $elsewhere || -e dirname($page) . "/$path" ? "[$text]($target)" : $text;
}

find({ no_chdir => 1, wanted => sub {
    my $page = $_;
    return unless /\.(?:md|txt)$/ && -f;
    local $/;
    open my $in, '<', $page or die "$page: $!\n";
    my $content = <$in>;
    close $in;
    # A text may have brackets, as `text[]` in a name.
    $content =~ s{(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)}{text_or_link($page, $1, $2)}ge or return;
    open my $out, '>', $page or die "$page: $!\n";
    print {$out} $content;
    close $out or die "$page: $!\n";
} }, $folder);
