import { loadSetup } from '../config/config.ts';
import { EXIT, printable } from './cli.ts';
import { becomeOwner, command, group, sourceOf } from './command.ts';
import { speaker } from './speech.ts';

const test = command({
  description: 'Send a test alarm to the configured command and address',
  examples: ['alarms test', 'alarms test --json'],
  async run(call) {
    const { ALARM_TEST, testAlarms } = await import('../support/alarm-test.ts');
    const { askRunning } = await import('../app/daemon-request.ts');
    const { clock, signal, env } = call.cli;
    const { config, secrets } = loadSetup(sourceOf(call));
    becomeOwner(call, config, false);
    const request = {
      config,
      clock,
      signal,
      name: ALARM_TEST,
      asked: null,
      timeoutMs: config.alarms.timeoutMs,
    };
    const byDaemon = await askRunning<null, Awaited<ReturnType<typeof testAlarms>>>(request);
    const results = byDaemon ?? (await testAlarms({ config, secrets, env, clock, signal }));
    const ok = results.every((result) => result.ok);
    const say = speaker(config, clock);
    return {
      json: { ok, by: byDaemon ? 'daemon' : 'command', results },
      text: results
        .map(({ description, ok, message }) => {
          const words = say(ok ? 'a test alarm was taken' : message);
          return `${ok ? 'ok    ' : say('FAILED')}  ${printable(`${say(description)}: ${words}`)}\n`;
        })
        .join(''),
      below: `${say(
        byDaemon
          ? 'The running tillsync sent it, as it sends its alarms.'
          : 'tillsync is not running, so this command sent it, with the rights of this user.',
      )}\n`,
      exit: ok ? EXIT.done : EXIT.failed,
    };
  },
});

export const alarms = group('Try who is told when something needs a person', { test });
