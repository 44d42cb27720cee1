import type { Config } from '../config/config-type.ts';
import { formatCommands, sameCommandWithSudo, TillsyncError } from '../core/errors.ts';
import { whenFree } from '../core/loop.ts';
import type { WebhookState } from '../platform/schemas.ts';
import { CALLBACKS_OFF, type WebhookMemory, WITHOUT_SECRET } from '../platform/webhook-registration.ts';
import { EXIT, printable } from './cli.ts';
import { command, withPlatform } from './command.ts';
import { fields } from './table.ts';

/** Returns the webhook configuration as text for a person. */
function webhookText(state: WebhookState | null): string {
  if (state === null) return 'The platform has no webhook configured.\n';
  return fields({
    'callback url': state.callbackUrl,
    active: yesNo(state.active),
    'has a secret': yesNo(state.hasSecret),
  });
}

function yesNo(value: boolean | null): string | null {
  return value === null ? null : value ? 'yes' : 'no';
}

export const show = command({
  description: 'Show the webhook registered at the platform',
  examples: ['webhook show', 'webhook show --json'],
  run: (context) =>
    withPlatform(context, async ({ services, config, progress, call }) => {
      progress.step('asking the platform for its webhook');
      const seen = await services.webhookRegistration.show(call);
      const memory = await whenFree(context.cli.clock, () => services.state.webhook.read());
      const registered = memory.registered?.callbackUrl ?? null;
      const wanted = config.webhook.callbackUrl === '' ? null : config.webhook.callbackUrl;
      const readable = seen !== 'unsupported';
      const webhook = readable ? seen : null;
      return {
        json: { readable, webhook, wanted, registered },
        ...(!readable && {
          above:
            'This platform does not answer the read of its webhook; see platform.quirks.webhook_read_path in the configuration.\n',
        }),
        text: readable ? webhookText(webhook) : fields({ 'last registered from here': registered }),
        below: adviceFor(webhook, wanted, memory),
      };
    }),
});

function adviceFor(
  webhook: WebhookState | null,
  wanted: string | null,
  { isOff, isWithoutSecret }: Pick<WebhookMemory, 'isOff' | 'isWithoutSecret'>,
): string {
  const advice = [isOff && CALLBACKS_OFF, isWithoutSecret && WITHOUT_SECRET];
  if (wanted === null) advice.push('webhook.callback_url is empty, so tillsync registers nothing.');
  else if (webhook !== null && webhook.callbackUrl !== wanted) {
    advice.push(`The configuration wants ${wanted}; set it with: {tillsync} webhook set`);
  }
  return advice
    .filter((text) => text !== false)
    .map((text) => `${formatCommands(text)}\n`)
    .join('');
}

export const set = command({
  description: "Create or replace the company's webhook",
  examples: ['webhook set', 'webhook set --url https://shop.example.com/webhook', 'webhook set --off'],
  options: {
    '--url <url>': 'address for callbacks (default: webhook.callback_url)',
    '--off': 'stop callbacks, also after a restart, until --on',
    '--on': 'start callbacks again after --off',
    '--no-secret': 'clear the secret: anyone who finds the address can then send orders',
    '--keep-secret': 'leave the secret that the platform has',
  },
  run: (context) =>
    withPlatform(context, async ({ services, config, progress, note, unseen, call }) => {
      const { url, off, on, keepSecret, secret } = context.options;
      if (off && on) throw new TillsyncError('usage', 'Use either --on or --off.');
      if (keepSecret && secret === false) {
        throw new TillsyncError('usage', 'Use either --no-secret or --keep-secret.');
      }
      if (!keepSecret && secret !== false) refuseHidden(unseen);
      const callbackUrl = addressOf(url, config);
      progress.step('telling the platform');
      const wish = {
        callbackUrl,
        isOff: off ? true : on ? false : undefined,
        isWithoutSecret: secret === false ? true : undefined,
        keepsSecret: keepSecret === true,
      };
      const state = await services.webhookRegistration.choose(wish, call);
      const { isOff, isWithoutSecret } = await whenFree(context.cli.clock, () =>
        services.state.webhook.read(),
      );
      const { health } = services.mirror;
      if (isOff) health.report('orders.webhook', 'off', CALLBACKS_OFF);
      else if (on) health.report('orders.webhook', 'unknown', 'Callbacks are on again; none has come yet.');
      const secretTold = keepSecret ? '' : isWithoutSecret ? ', without a secret' : ', with its secret';
      const detail = `${isOff ? 'off' : 'on'}${secretTold}`;
      await note({ action: 'webhook.set', subject: hostOf(callbackUrl), detail });
      progress.end();
      if (isWithoutSecret) context.cli.stderr.write(formatCommands(`${WITHOUT_SECRET}\n`));
      return {
        json: { webhook: state },
        text: webhookText(state),
        below: isOff ? formatCommands(`${CALLBACKS_OFF}\n`) : '',
      };
    }),
});

/** Throws if this user cannot read the secret that was handed to the service, and so cannot know which one is in use. */
function refuseHidden(unseen: readonly string[]): void {
  const hidden = unseen.find((file) => file.endsWith('.webhook-secret'));
  if (hidden === undefined) return;
  const message = `You do not have permission to read ${hidden}, and the daemon tells by it which secret is newer.`;
  throw new TillsyncError('storage-readonly', message, { hint: `Run: ${sameCommandWithSudo()}` });
}

/** Returns the host that the platform calls. The rest of the address may contain a secret. */
function hostOf(url: string | null): string | null {
  return url === null ? null : new URL(url).host;
}

function addressOf(url: string | undefined, { webhook }: Config): string {
  const callbackUrl = url ?? webhook.callbackUrl;
  if (callbackUrl === '') {
    throw new TillsyncError('usage', 'There is no address to register.', {
      hint: 'Give it with --url, or set webhook.callback_url in the configuration.',
    });
  }
  if (!/^https?:\/\//i.test(callbackUrl) || !URL.canParse(callbackUrl)) {
    throw new TillsyncError('usage', `--url: found "${callbackUrl}"; allowed: an http or https address.`);
  }
  return callbackUrl;
}

export const rotateSecret = command({
  description: 'Replace the secret at the platform without losing callbacks',
  examples: ['webhook rotate-secret'],
  run: (context) =>
    withPlatform(context, async ({ services, progress, note, unseen, call }) => {
      refuseHidden(unseen);
      progress.step('giving the platform a new secret');
      const state = await services.webhookRegistration.rotateSecret(call);
      await note({ action: 'webhook.rotate-secret', subject: hostOf(state.callbackUrl) });
      const text = 'The secret is new; the old one is accepted for another hour.\n';
      return { json: { webhook: state }, text: text + webhookText(state) };
    }),
});

export const test = command({
  description: 'Test the callback receiver, locally and at its public address',
  examples: ['webhook test'],
  run: (context) =>
    withPlatform(context, async ({ services, config, progress }) => {
      const { enabled, port } = config.webhook;
      if (!enabled) throw new TillsyncError('usage', 'The webhook is switched off in the configuration.');
      if (port === 0) {
        throw new TillsyncError(
          'usage',
          'webhook.listen picks a free port, so it cannot be found from outside.',
        );
      }
      const { probeWebhook } = await import('../support/webhook-probe.ts');
      progress.step('trying the receiver');
      const secret = services.webhookSecrets.current();
      const results = await probeWebhook({ config, secret, signal: context.cli.signal });
      const ok = results.every((result) => result.ok);
      const lines = results.map(
        ({ what, url, ok, message }) =>
          `${ok ? 'ok    ' : 'FAILED'}  ${what}: ${printable(`${url}: ${message}`)}\n`,
      );
      return {
        json: { ok, results },
        text: lines.join(''),
        ...(secret === undefined && {
          below: formatCommands(
            'There is no secret yet, so every callback is refused. To make one, run: {tillsync} webhook rotate-secret\n',
          ),
        }),
        exit: ok ? EXIT.done : EXIT.failed,
      };
    }),
});
