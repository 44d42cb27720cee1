import { spawn } from 'node:child_process';
import path from 'node:path';
import { ROOT, until } from '../support/workplace.ts';

/** Prints the time of each sign of life, because Node has no Unix datagram sockets. */
const RECEIVER = `use Socket; use Time::HiRes 'time'; $| = 1;
  socket(my $s, AF_UNIX, SOCK_DGRAM, 0) or die $!; bind($s, sockaddr_un($ARGV[0])) or die $!; print "listening\\n";
  while (defined recv($s, my $news, 65536, 0)) { printf "%.3f\\n", time if $news =~ /^WATCHDOG=1$/m; }`;

/** Stands for systemd, which ends a service whose signs of life stay away for `intervalMs`. */
export async function openWatchdog(directory: string, intervalMs: number) {
  const socket = path.join(directory, 'notify');
  const receiver = spawn('perl', ['-e', RECEIVER, socket], { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  receiver.stdout.on('data', (chunk) => {
    text += chunk;
  });
  await until('the watchdog listens', () => text.includes('listening'));
  const signsMs = () => (text.match(/^\d.*(?=\n)/gm) ?? []).map((seconds) => Number(seconds) * 1_000);
  return {
    /** Environment and program under which a daemon sends its signs of life here. */
    env: { NOTIFY_SOCKET: socket, WATCHDOG_USEC: String(intervalMs * 1_000) },
    under: path.join(ROOT, 'systemd/notify-exec'),
    count: () => signsMs().length,
    /** Waits for the next sign, then returns the longest time between two signs from the given one on. */
    async longestGapMs(from: number): Promise<number> {
      const count = signsMs().length;
      await until('the next sign of life', () => signsMs().length > count);
      const signs = signsMs().slice(Math.max(0, from - 1));
      return Math.max(...signs.slice(1).map((ms, i) => ms - (signs[i] ?? ms)));
    },
    close: () => receiver.kill('SIGKILL'),
  };
}
