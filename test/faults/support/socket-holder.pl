#!/usr/bin/perl
# What a socket unit does: holds the listening socket open and starts the command again whenever it ended.
# Arguments: port, file that gets the number of the process, command.
use strict;
use warnings;
use Socket;
use POSIX ();
$^F = 3;

my ($port, $pid_file, @command) = @ARGV;
socket(my $socket, PF_INET, SOCK_STREAM, 0) or die $!;
setsockopt($socket, SOL_SOCKET, SO_REUSEADDR, 1) or die $!;
bind($socket, sockaddr_in($port, INADDR_LOOPBACK)) or die $!;
listen($socket, 511) or die $!;
POSIX::dup2(fileno($socket), 3) or die $! if fileno($socket) != 3;

my $stopping = 0;
my $child;
$SIG{TERM} = sub { $stopping = 1; kill 'TERM', $child; };
until ($stopping) {
  $child = fork() // die $!;
  if ($child == 0) {
    $ENV{LISTEN_PID} = $$;
    $ENV{LISTEN_FDS} = 1;
    exec @command or die $!;
  }
  open(my $file, '>', "$pid_file.new") or die $!;
  print $file $child;
  close $file;
  rename "$pid_file.new", $pid_file or die $!;
  1 until waitpid($child, 0) == $child;
}
