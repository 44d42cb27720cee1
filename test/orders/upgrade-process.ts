import { openConnection } from '../../src/db/mirror-connection.ts';
import { stepThrough } from './upgrade-steps.ts';

/** Migrates the mirror PATH and kills itself before statement N. */
const [path = '', at] = process.argv.slice(2);
stepThrough(
  (step) => {
    if (step === Number(at)) process.kill(process.pid, 'SIGKILL');
  },
  () => openConnection({ path, readonly: false, group: undefined }).close(),
);
