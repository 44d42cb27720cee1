import type { Config } from '../../config/config-type.ts';
import { hasCode } from '../../domain/errors.ts';
import { FINDING_SENTENCES } from '../../domain/health/finding.ts';
import type { CallOptions } from '../../domain/platform/call.ts';
import type { WebhookState } from '../../domain/platform/platform.ts';
import type { WebhookMemory } from '../../domain/platform/webhook-memory.ts';
import { type ProbeResult, probeWebhook } from '../callbacks/webhook-probe.ts';
import { type Check, failed, type Outcome, skipped, warned, well } from './check.ts';
import type { Attempt } from './endpoints.ts';

const PUT_IT_BACK = 'Put it back with: {tillsync} webhook set';

export interface RegisteredCheckOptions {
  wantedUrl: string;
  show: (call: CallOptions) => Promise<WebhookState | null | 'unsupported'>;
  memory: () => WebhookMemory;
  attempt: Attempt;
}

/** Whether the platform's webhook is there and is the one that is wanted. */
export function registeredCheck({ wantedUrl, show, memory, attempt }: RegisteredCheckOptions): Check {
  return {
    id: 'webhook.registered',
    run: () =>
      attempt(async (how) => {
        const { registered } = memory();
        return registeredOutcome(wantedUrl, await seen(show, how), registered);
      }),
  };
}

/** As the daemon takes it: whatever an unknown address answers is no read at all. */
async function seen(show: RegisteredCheckOptions['show'], how: CallOptions) {
  try {
    return await show(how);
  } catch (error) {
    if (hasCode(error, 'platform-refused', 'platform-garbled', 'forbidden')) return 'unsupported';
    throw error;
  }
}

export function registeredOutcome(
  wantedUrl: string,
  there: WebhookState | null | 'unsupported',
  registered: WebhookMemory['registered'],
): Outcome {
  const isReadable = there !== 'unsupported';
  const facts = { wantedUrl, readable: isReadable, webhook: isReadable ? there : null };
  if (wantedUrl === '') {
    const found = isReadable && there?.callbackUrl ? ` The platform has ${there.callbackUrl}.` : '';
    return skipped(`webhook.callback_url is empty, so tillsync registers nothing.${found}`, null, facts);
  }
  const { message } = FINDING_SENTENCES['webhook.mismatch'];
  if (!isReadable) {
    if (registered?.callbackUrl === wantedUrl) {
      return well(`This platform does not show its webhook; ${wantedUrl} was registered from here.`, facts);
    }
    const remedy = 'Register it with: {tillsync} webhook set';
    return warned(
      `This platform does not show its webhook, and ${wantedUrl} was never registered.`,
      remedy,
      facts,
    );
  }
  if (!there?.callbackUrl) {
    return warned(`${message} It has none, so no callback comes.`, PUT_IT_BACK, facts);
  }
  if (there.callbackUrl !== wantedUrl) {
    return warned(`${message} It sends to ${there.callbackUrl}, not to ${wantedUrl}.`, PUT_IT_BACK, facts);
  }
  if (there.active === false) {
    return warned(`${message} It is switched off there, so no callback comes.`, PUT_IT_BACK, facts);
  }
  if (there.hasSecret === false) {
    return warned(`${message} It has no secret, so every callback is refused here.`, PUT_IT_BACK, facts);
  }
  return well(`The platform sends callbacks to ${wantedUrl}.`, facts);
}

export interface AddressChecksOptions {
  config: Config;
  /** The secret that callbacks carry; undefined when this command does not know it. */
  secret: string | undefined;
  signal: AbortSignal;
  /** null when it is not known. */
  running: boolean | null;
  /** Says why the public address is not tried; undefined: it is. */
  whyNot: () => string | undefined;
}

/** The receiver here and at its public address, tried as `webhook test` tries them. */
export function addressChecks(options: AddressChecksOptions): Check[] {
  const { config, running, whyNot } = options;
  let probed: Promise<ProbeResult[]> | undefined;
  const of = async (what: ProbeResult['what']) => {
    if (running === false) return skipped('tillsync does not run, so nobody takes callbacks.');
    probed ??= probe(options);
    return addressOutcome((await probed).filter((result) => result.what === what));
  };
  return [
    {
      id: 'webhook.receiver',
      run: () =>
        config.webhook.port === 0
          ? skipped('webhook.listen picks a free port, so it cannot be found from outside.')
          : of('local'),
    },
    {
      id: 'webhook.public',
      run: () => {
        const why = config.webhook.callbackUrl === '' ? 'webhook.callback_url is empty.' : whyNot();
        return why === undefined ? of('public') : skipped(why);
      },
    },
  ];
}

function probe({ config, secret, signal, whyNot }: AddressChecksOptions): Promise<ProbeResult[]> {
  const { webhook } = config;
  const callbackUrl = whyNot() === undefined ? webhook.callbackUrl : '';
  return probeWebhook({ config: { ...config, webhook: { ...webhook, callbackUrl } }, secret, signal });
}

export function addressOutcome(results: readonly ProbeResult[]): Outcome {
  const [first] = results;
  if (!first) return skipped('Not tried.');
  const wrong = results.find(({ ok }) => !ok);
  const facts = { results };
  if (!wrong) return well(`${first.url}: ${results.map(({ message }) => message).join('; ')}.`, facts);
  const message = `${wrong.url}: ${wrong.message}${wrong.message.endsWith('?') ? '' : '.'}`;
  // Orders still come by polling.
  if (wrong.what === 'public') {
    return warned(
      message,
      'Have the public address lead to webhook.listen here; try it with: {tillsync} webhook test',
      facts,
    );
  }
  return failed(message, 'Check webhook.listen and webhook.path, then restart the service.', facts);
}

/** For all of the webhook when it is switched off. */
export function webhookOffChecks(): Check[] {
  const off = () => skipped('The webhook is switched off in the configuration; orders come by polling.');
  const ids = ['webhook.registered', 'webhook.receiver', 'webhook.public', 'webhook.arriving'] as const;
  return ids.map((id) => ({ id, run: off }));
}
