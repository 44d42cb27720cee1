import type { Command } from 'commander';
import { whenFree } from '../../domain/busy.ts';
import { typedWords } from '../../domain/installation.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { fields } from '../texts/table.ts';
import { webhookText } from '../texts/webhook-text.ts';
import { withParts } from '../with-parts.ts';

/** `webhook show`: what the platform has, beside what the configuration wants. */
export function webhookShowCommand(cli: Cli): Command {
  return newResultCommand('show', 'Show the webhook as the platform has it', [
    'webhook show',
    'webhook show --json',
  ]).action((_options, command: Command) => show(cli, command.optsWithGlobals()));
}

function show(cli: Cli, options: GlobalOptions & JsonOption): Promise<void> {
  return withParts(cli, options, async ({ parts, config, progress, call }) => {
    progress.step('asking the platform for its webhook');
    const seen = await parts.webhookRegistration.show(call);
    progress.end();
    const memory = await whenFree(cli.clock, () => parts.state.webhook.read());
    const registered = memory.registered?.callbackUrl ?? null;
    const wanted = config.webhook.callbackUrl === '' ? null : config.webhook.callbackUrl;
    const webhook = seen === 'unsupported' ? null : seen;
    if (options.json) {
      writeJson(cli, { readable: seen !== 'unsupported', webhook, wanted, registered });
      return;
    }
    if (seen === 'unsupported') {
      cli.stderr.write(
        'This platform does not answer the read of its webhook; see platform.webhook_read_path in the configuration.\n',
      );
      cli.stdout.write(fields([['last registered from here', registered]]));
    } else {
      cli.stdout.write(webhookText(webhook));
    }
    if (wanted === null) {
      cli.stderr.write('webhook.callback_url is empty, so tillsync registers nothing.\n');
    } else if (webhook !== null && webhook.callbackUrl !== wanted) {
      cli.stderr.write(
        `The configuration wants ${wanted}; set it with: ${typedWords().tillsync} webhook set\n`,
      );
    }
  });
}
