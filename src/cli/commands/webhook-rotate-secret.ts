import type { Command } from 'commander';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { webhookText } from '../texts/webhook-text.ts';
import { withParts } from '../with-parts.ts';

/** `webhook rotate-secret`: a new secret without a callback lost; it is never shown. */
export function webhookRotateSecretCommand(cli: Cli): Command {
  return newResultCommand('rotate-secret', 'Give the platform a new secret; none in between is refused', [
    'webhook rotate-secret',
  ]).action((_options, command: Command) => rotate(cli, command.optsWithGlobals()));
}

function rotate(cli: Cli, options: GlobalOptions & JsonOption): Promise<void> {
  return withParts(cli, options, async ({ parts, progress, call }) => {
    progress.step('giving the platform a new secret');
    const state = await parts.webhookRegistration.rotateSecret(call);
    progress.end();
    if (options.json) writeJson(cli, { webhook: state });
    else
      cli.stdout.write(`The secret is new; the old one is accepted for another hour.\n${webhookText(state)}`);
  });
}
