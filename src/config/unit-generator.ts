/**
 * What systemd/tillsync-generator runs at boot and at each daemon-reload (systemd.generator(7)): before there is a
 * journal, with a file system that may only be written in the given directory.
 */
import { closeSync, constants, openSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { writeDropIns } from './drop-ins.ts';
import { CREDSTORE } from './secrets.ts';
import { DEFAULT_CONFIG_FILE } from './source.ts';

/** Beginning of a line in the kernel's log, from where the journal takes it: a warning of a service. */
const WARNING = '<28>tillsync-generator: ';
/** The kernel refuses a longer line. */
const LINE_MAX = 900;

const [, , units] = process.argv;
if (units !== undefined) {
  writeDropIns({ configs: dirname(DEFAULT_CONFIG_FILE), credstore: CREDSTORE, units, warn });
}

function warn(line: string): void {
  const text = line.replaceAll(/\s+/g, ' ').slice(0, LINE_MAX);
  try {
    // Where there is no such device, none is made.
    const log = openSync('/dev/kmsg', constants.O_WRONLY);
    writeSync(log, WARNING + text);
    closeSync(log);
  } catch {
    process.stderr.write(`${text}\n`);
  }
}
