import type { AskedKey } from '../../config/config-draft.ts';
import type { BranchConfig } from '../../config/config-type.ts';
import { SAMPLE_BASE_URL } from '../../config/sample-config.ts';
import type { Secrets } from '../../config/secrets.ts';
import { hasCode, type TillsyncError } from '../../domain/errors.ts';
import { asTyped } from '../../domain/installation.ts';
import { parseTokenInput } from '../token-input.ts';
import { setCallback } from './apply-options.ts';
import { branchName } from './report.ts';
import type { SetUp } from './set-up.ts';
import type { Question, Terminal } from './terminal.ts';
import { setTimeZone } from './time-zone.ts';

/** What a person can put right by another answer. */
const WRONG_ANSWER = ['usage', 'config-invalid'] as const;
/** What may pass, or be the fault of the line. */
const NO_ANSWER = [
  'platform-unreachable',
  'platform-failed',
  'rate-limited',
  'blocked',
  'forbidden',
  'unauthorized',
] as const;
/** What something else than the platform answers. */
const NO_PLATFORM = ['platform-refused', 'platform-garbled'] as const;

/** Asks a person for everything, trying each answer at once. Throws `aborted` when the person stops. */
export async function interview(terminal: Terminal, setUp: SetUp, secrets: Secrets): Promise<void> {
  do await askBaseUrl(terminal, setUp);
  while ((await askTokens(terminal, setUp, secrets)) === 'another-address');
  await askBranches(terminal, setUp);
  await askCallback(terminal, setUp);
  await askLocalListen(terminal, setUp);
  await askTimeZone(terminal, setUp);
  await askGroup(terminal, setUp);
}

async function askBaseUrl(terminal: Terminal, setUp: SetUp): Promise<void> {
  for (;;) {
    await askValue(
      terminal,
      setUp,
      'platform.base_url',
      {
        label: "Address of the platform's API",
        meaning:
          'As the company panel or the support of the platform names it, such as https://api.example.com.',
      },
      setUp.draft.value('platform.base_url') === SAMPLE_BASE_URL ? '' : undefined,
    );
    const outcome = await attempt(terminal, setUp, () => setUp.reach());
    if (outcome !== 'again') return;
  }
}

async function askTokens(
  terminal: Terminal,
  setUp: SetUp,
  secrets: Secrets,
): Promise<'done' | 'another-address'> {
  let handedIn = secrets.refreshToken;
  for (;;) {
    try {
      const state = await setUp.tokenState();
      if (state === 'ok' && handedIn !== undefined) handedIn = undefined;
      if (state === 'ok') {
        await setUp.tryStoredTokens();
        if (!(await terminal.yes('Hand over other tokens?', false))) return 'done';
      }
      const token = handedIn ?? (await askToken(terminal));
      handedIn = undefined;
      if (token === undefined) {
        const message = asTyped('none yet; hand them over with: {tillsync} auth set');
        setUp.note({ what: 'tokens', subject: 'refresh token', ok: false, message });
        setUp.offline = true;
        return 'done';
      }
      await setUp.useToken(token);
      return 'done';
    } catch (error) {
      if (hasCode(error, 'auth-required', ...WRONG_ANSWER)) tell(terminal, error);
      else if (hasCode(error, ...NO_PLATFORM)) {
        tell(terminal, error);
        terminal.say('What answers at this address does not look like the platform.');
        if (await terminal.yes('Enter another address?', true)) return 'another-address';
      } else if ((await afterFault(terminal, setUp, error)) === 'skipped') continue;
    }
  }
}

async function askToken(terminal: Terminal): Promise<string | undefined> {
  const text = await terminal.secret({
    label: 'Refresh token',
    meaning:
      'From the company panel. Paste it; it is not shown, and it is exchanged at once, so it works nowhere\nelse afterwards. Enter alone: hand it over later.',
  });
  return text === '' ? undefined : parseTokenInput(text).refreshToken;
}

async function askBranches(terminal: Terminal, setUp: SetUp): Promise<void> {
  const { draft } = setUp;
  let branches: BranchConfig[] = [];
  setUp.forgetBranches();
  for (const branch of draft.branches()) {
    const name = branchName(branch);
    const outcome = await attempt(terminal, setUp, () => setUp.tryBranch(branch));
    if (await terminal.yes(`Keep the branch ${name}?`, outcome !== 'again')) branches.push(branch);
  }
  draft.setBranches(branches);
  terminal.say('\nBranches of the company, one after the other; the platform cannot list them.');
  for (;;) {
    const isFirst = branches.length === 0;
    const subsidiaryId = await terminal.ask({
      label: isFirst ? "The platform's id of the branch" : "The platform's id of the next branch",
      meaning: isFirst
        ? 'The subsidiaryId, from the company panel. Enter alone: only your own id is known.'
        : 'Press Enter twice to finish.',
    });
    const externalId = await terminal.ask({
      label: 'Your own id of this branch',
      meaning: 'The externalId, if the branch has one. With both ids every order finds its branch.',
    });
    if (subsidiaryId === '' && externalId === '') {
      if (!isFirst || (await terminal.yes('Go on without a branch? No products are read then.', false)))
        return;
      continue;
    }
    const branch = { ...(subsidiaryId !== '' && { subsidiaryId }), ...(externalId !== '' && { externalId }) };
    const outcome = await attempt(terminal, setUp, async () => {
      draft.setBranches([...branches, branch]);
      await setUp.tryBranch(branch);
    });
    if (outcome === 'again') draft.setBranches(branches);
    else {
      branches = [...branches, branch];
    }
  }
}

async function askCallback(terminal: Terminal, setUp: SetUp): Promise<void> {
  const { draft } = setUp;
  for (;;) {
    const url = await terminal.ask({
      label: 'Public address for order callbacks (optional)',
      meaning:
        'Where the platform reaches this machine from the internet, such as https://shop.example.com/webhook;\nit is registered when tillsync starts. Without one orders come by polling, within about two minutes.\nEnter keeps what stands there; - for none.',
      kept: String(draft.value('webhook.callback_url')),
    });
    if ((await attempt(terminal, setUp, async () => setCallback(draft, url))) === 'again') continue;
    if (url === '') return;
    if (url.startsWith('http://')) {
      terminal.say('This address is not encrypted: orders and the secret could be read on the way.');
    }
    break;
  }
  await askValue(terminal, setUp, 'webhook.listen', {
    label: 'Where callbacks arrive on this machine',
    meaning:
      'host:port. 127.0.0.1 where a proxy with a certificate stands in front; 0.0.0.0 to take them directly.',
  });
}

/** Only where another program is in the way. */
async function askLocalListen(terminal: Terminal, setUp: SetUp): Promise<void> {
  if ((await attempt(terminal, setUp, () => setUp.tryListener('local.listen'))) !== 'again') return;
  await askValue(terminal, setUp, 'local.listen', {
    label: 'Where the status page and the API for the POS are',
    meaning: 'host:port, such as 127.0.0.1:8790.',
  });
}

async function askTimeZone(terminal: Terminal, setUp: SetUp): Promise<void> {
  for (;;) {
    const kept = String(setUp.draft.value('orders.timezone'));
    const zone = await terminal.ask({
      label: 'Time zone of the shop',
      meaning:
        'Used for order dates. Shops in Chile: America/Santiago, or America/Punta_Arenas in Magallanes.',
      kept,
    });
    const outcome = await attempt(terminal, setUp, async () => setTimeZone(setUp.draft, zone));
    if (outcome !== 'again') return;
  }
}

async function askGroup(terminal: Terminal, setUp: SetUp): Promise<void> {
  const { checkGroup } = await import('../../daemon/storage/storage-directory.ts');
  for (;;) {
    const group = await terminal.ask({
      label: 'Unix group of the point of sale (optional)',
      meaning:
        'Its members may read the mirror and hand over changes. Leave empty to keep the current\ngroup; - for none.',
      kept: String(setUp.draft.value('storage.group')),
    });
    const outcome = await attempt(terminal, setUp, async () => {
      checkGroup(group);
      setUp.draft.set('storage.group', group);
    });
    if (outcome !== 'again') return;
  }
}

async function askValue(
  terminal: Terminal,
  setUp: SetUp,
  key: AskedKey,
  question: Question,
  kept = String(setUp.draft.value(key) ?? ''),
): Promise<void> {
  for (;;) {
    const text = await terminal.ask({ ...question, kept });
    const take = async () => {
      setUp.draft.set(key, text);
      if (key === 'webhook.listen' || key === 'local.listen') await setUp.tryListener(key);
    };
    if ((await attempt(terminal, setUp, take)) !== 'again') return;
  }
}

/** Tells what is wrong with an answer; after a fault of the line the person decides whether it goes on untried. */
async function attempt(
  terminal: Terminal,
  setUp: SetUp,
  action: () => Promise<unknown>,
): Promise<'done' | 'again' | 'skipped'> {
  for (;;) {
    try {
      await action();
      return 'done';
    } catch (error) {
      if (hasCode(error, ...WRONG_ANSWER, ...NO_PLATFORM)) {
        tell(terminal, error);
        return 'again';
      }
      const then = await afterFault(terminal, setUp, error);
      if (then === 'another') return 'again';
      if (then === 'skipped') {
        await action();
        return 'skipped';
      }
    }
  }
}

async function afterFault(
  terminal: Terminal,
  setUp: SetUp,
  error: unknown,
): Promise<'retry' | 'another' | 'skipped'> {
  if (!hasCode(error, ...NO_ANSWER, 'auth-required')) throw error;
  tell(terminal, error);
  for (;;) {
    const label = 'What now? Enter: try again. c: correct the answer. o: go on without the platform.';
    const answer = (await terminal.ask({ label })).toLowerCase();
    if (answer === '') return 'retry';
    if (answer === 'c') return 'another';
    if (answer !== 'o') continue;
    setUp.offline = true;
    return 'skipped';
  }
}

function tell(terminal: Terminal, { message, hint }: TillsyncError): void {
  terminal.say(hint === undefined ? message : `${message}\n${hint}`);
}
