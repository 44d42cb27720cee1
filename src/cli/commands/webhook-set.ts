import type { Command } from 'commander';
import { TillsyncError } from '../../domain/errors.ts';
import type { WebhookChange } from '../../domain/platform/platform.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { webhookText } from '../texts/webhook-text.ts';
import { type CommandTools, withParts } from '../with-parts.ts';

interface WebhookSetOptions extends GlobalOptions, JsonOption {
  url?: string;
  off?: boolean;
  keepSecret?: boolean;
}

/** `webhook set`: creates or replaces the company's one webhook. */
export function webhookSetCommand(cli: Cli): Command {
  return newResultCommand('set', "Create or replace the company's webhook", [
    'webhook set',
    'webhook set --url https://shop.example.com/webhook',
    'webhook set --off',
  ])
    .option('--url <url>', 'where notifications go; without it webhook.callback_url')
    .option('--off', 'keep it, and stop the platform from sending')
    .option('--keep-secret', 'leave the secret that the platform has')
    .action((_options, command: Command) => set(cli, command.optsWithGlobals()));
}

function set(cli: Cli, options: WebhookSetOptions): Promise<void> {
  return withParts(cli, options, async (tools) => {
    const change = changeOf(options, tools);
    tools.progress.step('telling the platform');
    const state = await tools.parts.webhookRegistration.set(change, tools.call);
    tools.progress.end();
    if (options.json) writeJson(cli, { webhook: state });
    else cli.stdout.write(webhookText(state));
    if (change.secret === undefined && !options.keepSecret) {
      cli.stderr.write('No webhook-secret is handed in, so callbacks would be refused; hand one in.\n');
    }
  });
}

function changeOf(options: WebhookSetOptions, { parts, config }: CommandTools): WebhookChange {
  const callbackUrl = options.url ?? config.webhook.callbackUrl;
  if (callbackUrl === '') {
    throw new TillsyncError('usage', 'There is no address to register.', {
      hint: 'Give it with --url, or set webhook.callback_url in the configuration.',
    });
  }
  if (!/^https?:\/\//i.test(callbackUrl) || !URL.canParse(callbackUrl)) {
    throw new TillsyncError('usage', `--url: found "${callbackUrl}"; allowed: an http or https address.`);
  }
  const secret = options.keepSecret ? undefined : parts.webhookSecrets.current();
  return { callbackUrl, active: !options.off, ...(secret === undefined ? {} : { secret }) };
}
