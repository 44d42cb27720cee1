import type { Config } from '../config/config-type.ts';
import { TillsyncError } from '../core/errors.ts';
import { type Clock, localTimes } from '../core/time.ts';
import { FINDINGS } from '../health/findings.ts';
import { SPANISH_FINDINGS, SPANISH_TEXTS, Translator } from '../health/speech.ts';
import commands from './spanish.json' with { type: 'json' };

/** Translates an English text of tillsync into the shop's language, and its times to the shop's time zone. */
export type Say = (english: string) => string;

/** The translator, created for the first Spanish text of a command. */
let translator: Translator | undefined;

/** Returns the translator for all sentences that commands print. */
export function spanish(): Translator {
  translator ??= new Translator({ ...commands, ...findings(), ...SPANISH_TEXTS });
  return translator;
}

/**
 * Returns a function that translates the texts of commands such as `status` and `doctor`, and shows times in the shop's
 * zone. In a shop with English texts, it changes only the times; without a readable configuration, it changes nothing.
 */
export function speaker(
  config: Pick<Config, 'shop' | 'orders'> | undefined,
  clock: Pick<Clock, 'nowMs'>,
): Say {
  if (config === undefined) return (english) => english;
  const { shop, orders } = config;
  const local: Say = (text) => localTimes(text, orders.timezone, clock.nowMs());
  if (shop.language === 'en') return local;
  return (english) => local(spanish().known(english));
}

/** Returns the same error in the shop's language. Fields for programs stay as they are. */
export function spokenError(error: unknown, say: Say): unknown {
  if (!(error instanceof TillsyncError)) return error;
  const { code, message, hint, retryable } = error;
  return new TillsyncError(code, say(message), {
    cause: error,
    retryable,
    ...(hint !== undefined && { hint: say(hint) }),
  });
}

/** Returns the English texts of the findings, which `doctor` shows too, each with its translation. */
function findings(): Record<string, string> {
  const table: Record<string, string> = {};
  for (const [code, told] of Object.entries(SPANISH_FINDINGS)) {
    const { message, remedy, remedies = {} } = FINDINGS[code as keyof typeof FINDINGS];
    table[message] = told.message;
    table[message.replace(': {count}', '')] = told.message.replace(': {count}', '');
    table[remedy] = told.remedy;
    for (const [cause, words] of Object.entries(remedies)) {
      table[words] = told.remedies?.[cause as keyof typeof remedies] ?? told.remedy;
    }
  }
  return table;
}
