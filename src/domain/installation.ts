/** How tillsync is called on this machine for one configuration. */
export interface Installation {
  /** What starts a command: `tillsync`, or `npm run -s tillsync --` in a checkout. */
  program: string;
  /** Whether what is stored belongs to another user than the person who types. */
  needsSudo: boolean;
  /** Where what is stored lies. */
  storage: string;
  /** null: the one that is read without `--config`. */
  configFile: string | null;
  /** The unit of the package that serves this file, such as `tillsync@north.service`; null: none does. */
  unit: string | null;
}

/** What a text may name in braces, such as `{tillsync} auth set`, and what a person types for it here. */
export interface TypedWords {
  tillsync: string;
  /** Starts the daemon. */
  start: string;
  restart: string;
  stop: string;
  /** Has it start with the machine. */
  enable: string;
  /** Shows why it ended. */
  journal: string;
  /** The storage directory. */
  storage: string;
}

const PACKAGED: Installation = {
  program: 'tillsync',
  needsSudo: false,
  storage: '/var/lib/tillsync',
  configFile: null,
  unit: 'tillsync.service',
};
const NAMED = /\{(tillsync|start|restart|stop|enable|journal|storage)\}/g;

let look: () => Installation = () => PACKAGED;
let words: TypedWords | undefined;
let command = '';

/**
 * Tells once, where the process is put together, how its texts name commands; `find` is called for the first text.
 * `typed`: the command that runs, such as `order show 12`.
 */
export function setInstallation(
  find: () => Installation = () => PACKAGED,
  typed: readonly string[] = [],
): void {
  look = find;
  command = typed.map((word) => ` ${quoted(word)}`).join('');
  words = undefined;
}

/** The commands of this installation. */
export function typedWords(): TypedWords {
  words ??= wordsOf(look());
  return words;
}

/** The command that runs, as one types it who has not the right to run it. */
export function typedAgain(): string {
  return `${wordsOf({ ...look(), needsSudo: true }).tillsync}${command}`;
}

/** A text with its commands in place, literally as they are typed here. */
export function asTyped(text: string): string {
  if (!text.includes('{')) return text;
  return text.replaceAll(NAMED, (_all, name: keyof TypedWords) => typedWords()[name]);
}

export function wordsOf({ program, needsSudo, storage, configFile, unit }: Installation): TypedWords {
  const sudo = needsSudo ? 'sudo ' : '';
  const tillsync = `${sudo}${program}${configFile === null ? '' : ` --config ${quoted(configFile)}`}`;
  if (unit === null) {
    const start = `${tillsync} run`;
    return { tillsync, start, restart: start, stop: 'Ctrl-C', enable: start, journal: start, storage };
  }
  const name = unit.replace(/\.service$/, '');
  return {
    tillsync,
    start: `${sudo}systemctl start ${name}`,
    restart: `${sudo}systemctl restart ${name}`,
    stop: `${sudo}systemctl stop ${name}.socket ${name}.service`,
    enable: `${sudo}systemctl enable ${name}`,
    journal: `${sudo}journalctl -u ${name} -n 50`,
    storage,
  };
}

function quoted(path: string): string {
  return /^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}
