import type { Command } from 'commander';
import { TillsyncError } from '../../domain/errors.ts';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { printable } from '../texts/printable.ts';
import { withParts } from '../with-parts.ts';

/** `webhook test`: whether callbacks would get through, without leaving a trace. */
export function webhookTestCommand(cli: Cli): Command {
  return newResultCommand(
    'test',
    'Try the receiver here and at its public address, without leaving a trace',
    ['webhook test'],
  ).action((_options, command: Command) => test(cli, command.optsWithGlobals()));
}

function test(cli: Cli, options: GlobalOptions & JsonOption): Promise<void> {
  return withParts(cli, options, async ({ parts, config, progress }) => {
    const { enabled, port } = config.webhook;
    if (!enabled) throw new TillsyncError('usage', 'The webhook is switched off in the configuration.');
    if (port === 0) {
      throw new TillsyncError(
        'usage',
        'webhook.listen picks a free port, so it cannot be found from outside.',
      );
    }
    progress.step('trying the receiver');
    const { probeWebhook } = await import('../../daemon/callbacks/webhook-probe.ts');
    const secret = parts.webhookSecrets.current();
    const results = await probeWebhook({ config, secret, signal: cli.signal });
    progress.end();
    if (results.some((result) => !result.ok)) cli.endWith(EXIT.failed);
    if (options.json) {
      writeJson(cli, { ok: results.every((result) => result.ok), results });
      return;
    }
    for (const { what, url, ok, message } of results) {
      cli.stdout.write(`${ok ? 'ok    ' : 'FAILED'}  ${what}: ${printable(`${url}: ${message}`)}\n`);
    }
    if (secret === undefined)
      cli.stderr.write('No webhook-secret is handed in, so every callback is refused.\n');
  });
}
