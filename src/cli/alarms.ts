import type * as z from 'zod';
import type { alarmTestAnswer } from '../api/schemas.ts';
import { loadSetup } from '../config/config.ts';
import { TillsyncError } from '../core/errors.ts';
import { EXIT, printable } from './cli.ts';
import { command, sourceOf } from './command.ts';
import { askRunning } from './daemon-client.ts';
import { speaker } from './speech.ts';

export const testAlarms = command({
  description: 'Send a test alarm to every receiver',
  examples: ['config test-alarms', 'config test-alarms --json'],
  async run(call) {
    const { clock, signal, env } = call.cli;
    const { config, secrets } = loadSetup(sourceOf(call));
    const { timeoutMs } = config.alarms;
    const asked = { path: '/alarms/test', timeoutMs };
    const answer: z.output<typeof alarmTestAnswer> | undefined = await askRunning(call, asked);
    const byCommand = async () => {
      const alarmTest = await import('../support/alarm-test.ts');
      return alarmTest.testAlarms({ config, secrets, env, clock, signal });
    };
    const results = answer?.results ?? (await byCommand());
    if (results.length === 0) {
      throw new TillsyncError('config-invalid', 'No receiver of alarms is configured.', {
        hint: 'Set alarms.command, alarms.url or alarms.heartbeat_url, or hand in an alarm-url or a heartbeat-url among the secrets.',
      });
    }
    const ok = results.every((result) => result.ok);
    const say = speaker(config, clock);
    return {
      json: { ok, by: answer ? 'daemon' : 'command', results },
      text: results
        .map(({ description, ok, message }) => {
          const words = say(ok ? 'a test alarm was taken' : message);
          return `${ok ? 'ok    ' : say('FAILED')}  ${printable(`${say(description)}: ${words}`)}\n`;
        })
        .join(''),
      below: `${say(
        answer
          ? 'The running tillsync sent it, as it sends its alarms.'
          : 'tillsync is not running, so this command sent it, with the rights of this user.',
      )}\n`,
      exit: ok ? EXIT.done : EXIT.failed,
    };
  },
});
