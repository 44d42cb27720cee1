import { summed, told } from './record.ts';
import { type Command, type Figures, repeatLine, type Tier } from './tiers.ts';

/** An ended turn, with the results from the report of Vitest. */
export interface Turn {
  tier: string;
  command: Command;
  seconds: number;
  figures: Figures;
  passed: number;
  failed: number;
}

export interface Progress {
  commit: string;
  minutes: number;
  spentSeconds: number;
  turns: readonly Turn[];
  now: { tier: Tier; command: Command } | undefined;
}

const clockTime = (seconds: number) =>
  `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`;

/**
 * Returns the whole screen: for each tier its figures, and the command of one turn: of the running one, else of the
 * first that failed, else of the last.
 */
export function screenOf(tiers: readonly Tier[], progress: Progress): string {
  const { commit, minutes, spentSeconds, turns, now } = progress;
  const lines = [
    `Proof of tillsync at ${commit}, ${clockTime(spentSeconds)} of ${clockTime(minutes * 60)}`,
    '',
  ];
  for (const tier of tiers) {
    const own = turns.filter((turn) => turn.tier === tier.name);
    const failed = own.filter((turn) => turn.failed > 0);
    const isNow = now?.tier === tier;
    const state = failed.length > 0 ? 'FAILED' : isNow ? 'runs' : own.length > 0 ? 'passed' : '';
    const figures = told(summed(own.map((turn) => turn.figures)));
    lines.push(`${state.padEnd(7)} ${tier.name.padEnd(40)} ${figures}`);
    const command = isNow ? now.command : (failed[0] ?? own.at(-1))?.command;
    if (command !== undefined) lines.push(`          ${repeatLine(command)}`);
  }
  lines.push('', `so far: ${told(summed(turns.map((turn) => turn.figures))) || 'nothing yet'}`);
  return `${lines.join('\n')}\n`;
}

/** Returns the text about an ended turn, for an output that is not a terminal. */
export function turnLine(tier: Tier, turn: Turn): string {
  const figures = told(turn.figures);
  const what = [figures, `${turn.passed} tests passed, ${turn.failed} failed`].filter(Boolean).join('; ');
  return `${turn.failed > 0 ? 'FAILED' : 'passed'}  ${tier.name}: ${what}; ${Math.round(turn.seconds)} s
        ${repeatLine(turn.command)}\n`;
}
