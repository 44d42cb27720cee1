import type { Command } from 'commander';
import { TillsyncError, typedWords, whenFree } from '../core/errors.ts';
import type { WebhookChange, WebhookState } from '../platform/platform.ts';
import {
  type Cli,
  EXIT,
  type GlobalOptions,
  type JsonOption,
  newResultCommand,
  printable,
  writeJson,
} from './cli.ts';
import { fields } from './table.ts';
import { type CommandTools, withParts } from './with-parts.ts';

/** A webhook configuration for a person; null: none is configured. */
export function webhookText(state: WebhookState | null): string {
  if (state === null) return 'The platform has no webhook configured.\n';
  return fields([
    ['callback url', state.callbackUrl],
    ['active', yesNo(state.active)],
    ['has a secret', yesNo(state.hasSecret)],
  ]);
}

function yesNo(value: boolean | null): string | null {
  return value === null ? null : value ? 'yes' : 'no';
}

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
    const { probeWebhook } = await import('../app/webhook-probe.ts');
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
