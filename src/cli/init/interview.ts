import { checkGroup } from '../../app/storage.ts';
import type { BranchConfig } from '../../config/config-type.ts';
import type { AskedKey, ConfigDraft } from '../../config/edit.ts';
import type { ROLES } from '../../config/roles.ts';
import type { Secrets } from '../../config/secrets.ts';
import { SAMPLE_BASE_URL } from '../../config/source.ts';
import { formatCommands, hasCode, type TillsyncError } from '../../core/errors.ts';
import { parseTokenInput } from '../auth.ts';
import { type ListenKey, setTimeZone } from './machine.ts';
import { branchName, type SetUp } from './set-up.ts';
import type { Terminal } from './terminal.ts';

/** Codes of errors that another answer can correct. */
const WRONG_ANSWER = ['usage', 'config-invalid'] as const;
/** Codes of errors that may be temporary. The person may try again, or continue without the platform. */
const NO_ANSWER = [
  'platform-unreachable',
  'platform-failed',
  'rate-limited',
  'blocked',
  'forbidden',
  'unauthorized',
] as const;
/** Codes of errors that suggest that the server at the address is not the platform. */
const NO_PLATFORM = ['platform-refused', 'platform-garbled'] as const;

const ALL = [
  'platform',
  'branches',
  'callbacks',
  'local',
  'timezone',
  'customers',
  'backups',
  'group',
] as const;
export type Step = (typeof ALL)[number];

/** Questions of each role, in order. A branch has none about the platform, because only its hub calls the platform. */
const STEPS: Record<(typeof ROLES)[number], readonly Step[]> = {
  store: ALL,
  hub: ALL,
  branch: ['local', 'timezone', 'backups', 'group'],
};

const PROPOSED_PERSONAL_DATA = '60d';

/** Returns the questions for the role in the draft. */
export function stepsOf(draft: ConfigDraft): readonly Step[] {
  return STEPS[draft.role()];
}

/**
 * Sets the callback address. An address switches callbacks on. Removing the address, or giving none in a new set-up,
 * switches them off.
 */
export function setCallback(draft: ConfigDraft, callbackUrl: string): void {
  const before = draft.value('webhook.callback_url');
  draft.set('webhook.callback_url', callbackUrl);
  if (callbackUrl !== '') draft.set('webhook.enabled', true);
  else if (before !== '' || draft.isNew) draft.set('webhook.enabled', false);
}

/** Asks a person all questions and tries each answer at once. Throws `aborted` if the person stops. */
export class Interview {
  readonly #terminal: Terminal;
  readonly #setUp: SetUp;
  readonly #draft: ConfigDraft;
  /** Token that the service already has. It is tried once before a person is asked for a token. */
  #handedIn: string | undefined;

  constructor(terminal: Terminal, setUp: SetUp, { refreshToken }: Secrets) {
    this.#terminal = terminal;
    this.#setUp = setUp;
    this.#draft = setUp.draft;
    this.#handedIn = refreshToken;
  }

  async all(steps: readonly Step[]): Promise<void> {
    this.#terminal.say(
      `This sets tillsync up in ${this.#draft.file}. Enter takes what stands in [brackets]; each answer is tried
at once; nothing is written before the end, and Ctrl-C leaves the file as it is.`,
    );
    const ask: Record<Step, () => Promise<void>> = {
      platform: async () => {
        do await this.#askBaseUrl();
        while (!(await this.#hasTokens()));
      },
      branches: () => this.#askBranches(),
      callbacks: () => this.#askCallback(),
      local: () => this.#askLocal(),
      timezone: () => this.#askTimeZone(),
      customers: () => this.#askPersonalData(),
      backups: () => this.#askPhrase(),
      group: () => this.#askGroup(),
    };
    for (const step of steps) await ask[step]();
  }

  /** Asks for another address only if a different program uses the port. */
  async #askLocal(): Promise<void> {
    if (await this.#holds(() => this.#setUp.tryListener('local.listen'))) return;
    const label = 'Where the status page and the API for the POS are';
    await this.#askListen('local.listen', label, 'host:port, such as 127.0.0.1:8790.');
  }

  async #askTimeZone(): Promise<void> {
    await this.#ask(
      'orders.timezone',
      'Time zone of the shop',
      'Used for order dates. Shops in Chile: America/Santiago, or America/Punta_Arenas in Magallanes.',
      (zone) => setTimeZone(this.#draft, zone),
    );
  }

  /**
   * Asks how long customer data is stored. The law demands a limit, but by default the data stays as long as its order.
   * So a new set-up proposes a limit.
   */
  async #askPersonalData(): Promise<void> {
    const isUnset = this.#draft.isNew && this.#draft.value('retention.personal_data') === '0d';
    if (isUnset) this.#draft.set('retention.personal_data', PROPOSED_PERSONAL_DATA);
    await this.#ask(
      'retention.personal_data',
      'How long customers are stored after the end of their order',
      'Names, phones, addresses, e-mails and comments are then forgotten here; the order stays. Such as 60d;\n0d: for as long as the order is kept.',
      (time) => this.#draft.set('retention.personal_data', time),
    );
  }

  /**
   * Offers a recovery phrase only while backups are not encrypted, because a new phrase would not decrypt the backups
   * of an earlier phrase.
   */
  async #askPhrase(): Promise<void> {
    if (this.#setUp.areBackupsEncrypted) return;
    this.#terminal.say(
      '\nA backup of each day holds names and phones. A recovery phrase of 24 words encrypts it; the words\nare shown once, at the end, and nobody opens a backup without them.',
    );
    if (await this.#terminal.yes('Make a recovery phrase?', this.#draft.isNew))
      await this.#setUp.makePhrase();
  }

  async #askGroup(): Promise<void> {
    await this.#ask(
      'storage.group',
      'Unix group of the point of sale (optional)',
      'Its members may read the mirror and hand over changes. Leave empty to keep the current\ngroup; - for none.',
      (group) => {
        checkGroup(group);
        this.#draft.set('storage.group', group);
      },
    );
  }

  async #askBaseUrl(): Promise<void> {
    do {
      await this.#ask(
        'platform.base_url',
        "Address of the platform's API",
        'As the company panel or the support of the platform names it, such as https://api.example.com.',
        (url) => this.#draft.set('platform.base_url', url),
      );
    } while (!(await this.#holds(() => this.#setUp.reach())));
  }

  /** Asks until tokens are stored or left for later. Returns false if the person wants to give another address. */
  async #hasTokens(): Promise<boolean> {
    for (;;) {
      try {
        await this.#askTokens();
        return true;
      } catch (error) {
        if (hasCode(error, 'auth-required', ...WRONG_ANSWER)) this.#tell(error);
        else if (hasCode(error, ...NO_PLATFORM)) {
          this.#tell(error);
          this.#terminal.say('What answers at this address does not look like the platform.');
          if (await this.#terminal.yes('Enter another address?', true)) return false;
        } else await this.#afterFault(error);
      }
    }
  }

  async #askTokens(): Promise<void> {
    const setUp = this.#setUp;
    const isStored = (await setUp.tokenState()) === 'ok';
    const handedIn = isStored ? undefined : this.#handedIn;
    if (isStored) {
      this.#handedIn = undefined;
      await setUp.tryStoredTokens();
      if (!(await this.#terminal.yes('Hand over other tokens?', false))) return;
    }
    this.#handedIn = undefined;
    const token = handedIn ?? (await this.#askToken());
    if (token !== undefined) return setUp.useToken(token);
    const later = formatCommands('none yet; hand them over with: {tillsync} auth set');
    setUp.note('tokens', 'refresh token', false, later);
    setUp.offline = true;
  }

  async #askToken(): Promise<string | undefined> {
    const text = await this.#terminal.secret({
      label: 'Refresh token',
      meaning:
        'From the company panel. Paste it; it is not shown, and it is exchanged at once, so it works nowhere\nelse afterwards. Enter alone: hand it over later.',
    });
    return text === '' ? undefined : parseTokenInput(text).refreshToken;
  }

  async #askBranches(): Promise<void> {
    const terminal = this.#terminal;
    const setUp = this.#setUp;
    let branches: BranchConfig[] = [];
    setUp.forgetBranches();
    for (const branch of this.#draft.branches()) {
      const isSound = await this.#holds(() => setUp.tryBranch(branch));
      if (await terminal.yes(`Keep the branch ${branchName(branch)}?`, isSound)) branches.push(branch);
    }
    this.#draft.setBranches(branches);
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
        if (!isFirst) return;
        if (await terminal.yes('Go on without a branch? No products are read then.', false)) return;
        continue;
      }
      const branch = {
        ...(subsidiaryId !== '' && { subsidiaryId }),
        ...(externalId !== '' && { externalId }),
      };
      const wanted = [...branches, branch];
      const isSound = await this.#holds(async () => {
        this.#draft.setBranches(wanted);
        await setUp.tryBranch(branch);
      });
      if (isSound) branches = wanted;
      else this.#draft.setBranches(branches);
    }
  }

  async #askCallback(): Promise<void> {
    const url = await this.#ask(
      'webhook.callback_url',
      'Public address for order callbacks (optional)',
      'Where the platform reaches this machine from the internet, such as https://shop.example.com/webhook;\nit is registered when tillsync starts. Without one orders come by polling, within about two minutes.\nEnter keeps what stands there; - for none.',
      (url) => setCallback(this.#draft, url),
    );
    if (url === '') return;
    if (url.startsWith('http://')) {
      this.#terminal.say('This address is not encrypted: orders and the secret could be read on the way.');
    }
    await this.#askListen(
      'webhook.listen',
      'Where callbacks arrive on this machine',
      'host:port. 127.0.0.1 where a proxy with a certificate stands in front; 0.0.0.0 to take them directly.',
    );
  }

  async #askListen(key: ListenKey, label: string, meaning: string): Promise<void> {
    await this.#ask(key, label, meaning, (address) => {
      this.#draft.set(key, address);
      return this.#setUp.tryListener(key);
    });
  }

  /** Asks for the value of a configuration key until an answer is valid. */
  async #ask(
    key: AskedKey,
    label: string,
    meaning: string,
    take: (answer: string) => void | Promise<void>,
  ): Promise<string> {
    const value = this.#draft.value(key) ?? '';
    const kept = value === SAMPLE_BASE_URL ? '' : String(value);
    for (;;) {
      const answer = await this.#terminal.ask({ label, meaning, kept });
      if (await this.#holds(async () => take(answer))) return answer;
    }
  }

  /**
   * Runs `action`, which tries an answer, and returns whether it succeeded. Shows the fault if it did not. After a
   * connection error, the person may continue without the try.
   */
  async #holds(action: () => Promise<void>): Promise<boolean> {
    for (;;) {
      try {
        await action();
        return true;
      } catch (error) {
        if (hasCode(error, ...WRONG_ANSWER, ...NO_PLATFORM)) {
          this.#tell(error);
          return false;
        }
        if ((await this.#afterFault(error)) === 'correct') return false;
      }
    }
  }

  async #afterFault(error: unknown): Promise<'again' | 'correct'> {
    if (!hasCode(error, ...NO_ANSWER, 'auth-required')) throw error;
    this.#tell(error);
    for (;;) {
      const label = 'What now? Enter: try again. c: correct the answer. o: go on without the platform.';
      const answer = (await this.#terminal.ask({ label })).toLowerCase();
      if (answer === 'c') return 'correct';
      if (answer !== '' && answer !== 'o') continue;
      if (answer === 'o') this.#setUp.offline = true;
      return 'again';
    }
  }

  #tell({ message, hint }: TillsyncError): void {
    this.#terminal.say(hint === undefined ? message : `${message}\n${hint}`);
  }
}
