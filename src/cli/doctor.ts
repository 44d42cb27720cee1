import { becomeStorageUser } from '../app/installation.ts';
import { TillsyncError } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import { CHECK_IDS, CHECK_TITLES, type CheckResult } from '../support/doctor/check.ts';
import type { Cli } from './cli.ts';
import { command, sourceOf } from './command.ts';
import { checkText, type DoctorStyle, doctorExit, helpText, summaryText } from './doctor-text.ts';
import { Progress } from './progress.ts';
import { type Say, speaker } from './speech.ts';

export const doctor = command({
  description: 'Check every connection and suggest fixes',
  examples: ['doctor', 'doctor --only webhook --only platform.clock', 'doctor --offline --json'],
  options: {
    '--offline': "Don't contact the platform",
    '--only <check...>': 'Only these checks (example: storage or webhook.public)',
  },
  more:
    '\nThe command changes nothing at the platform and respects its rate limits.\n' +
    'Exit codes: 0 all well, 1 problems found, 2 unusable configuration,\n' +
    '3 warnings, or checks this user may not run, 4 new tokens needed.',
  async run({ cli, options }) {
    const { checksNamed, concerns, examine } = await import('../support/doctor/doctor.ts');
    const { readDoctorSetup } = await import('../support/doctor/machine.ts');
    const { clock, random, signal, stderr } = cli;
    const { only = [], offline = false } = options;
    const setup = readDoctorSetup(sourceOf({ cli, options }));
    const known = CHECK_IDS.filter((id) => concerns(id, setup.config));
    const unknown = only.find((word) => checksNamed(word).length === 0);
    if (unknown !== undefined) {
      const hint = `Those that there are: ${known.join(', ')}; or the beginning of several, such as storage.`;
      throw new TillsyncError('usage', `There is no check "${unknown}".`, { hint });
    }
    const shown = only.length === 0 ? known : only.flatMap(checksNamed);
    const progress = new Progress(cli);
    const results: CheckResult[] = [];
    const advised = new Set<string>();
    const say = speaker(setup.config, clock);
    const titleWidth = Math.max(...shown.map((id) => say(CHECK_TITLES[id]).length));
    const language = setup.config?.shop.language ?? 'en';
    const style = { ...styleOf(cli), language };
    try {
      if (setup.config) {
        const { directory } = setup.config.storage;
        becomeStorageUser({ directory, configFile: setup.file, writes: false });
      }
      const examination = examine({
        setup,
        clock,
        random,
        signal,
        only,
        offline,
        onCheck: (id) => stderr.isTTY && progress.step(say(`checking: ${CHECK_TITLES[id]}`)),
        onWait: (wait) => progress.wait(wait),
      });
      for await (const result of examination) {
        results.push(result);
        progress.end();
        const told = spoken(withoutRepeat(result, advised), say);
        if (!options.json) cli.stdout.write(checkText(told, titleWidth, style));
      }
    } finally {
      progress.end();
    }
    const summary = summaryText(results);
    const help = helpText(results, language);
    return {
      json: documentOf(results, summary, isoUtc(clock.nowMs())),
      text: `\n${say(summary)}\n`,
      below: help === '' ? '' : `${say(help.trimEnd())}\n`,
      exit: doctorExit(results),
    };
  },
});

function spoken(result: CheckResult, say: Say): CheckResult {
  const { title, message, remedy } = result;
  return {
    ...result,
    title: say(title),
    message: say(message),
    remedy: remedy === null ? null : say(remedy),
  };
}

/** Removes the remedy of a skipped check if an earlier skipped check had the same remedy (`advised`). */
function withoutRepeat(result: CheckResult, advised: Set<string>): CheckResult {
  const { level, remedy } = result;
  if (remedy === null || level !== 'skipped') return result;
  if (advised.has(remedy)) return { ...result, remedy: null };
  advised.add(remedy);
  return result;
}

function documentOf(results: readonly CheckResult[], summary: string, at: string) {
  const counts = { ok: 0, warn: 0, fail: 0, skipped: 0 };
  for (const { level } of results) counts[level]++;
  return {
    at,
    summary,
    counts,
    needsTokens: results.some(({ needsTokens }) => needsTokens === true),
    checks: results.map(({ needsTokens: _needs, isHidden: _hidden, ...check }) => check),
  };
}

function styleOf({ stdout, env }: Cli): DoctorStyle {
  const isPlain = (env.NO_COLOR ?? '') !== '' || env.TERM === 'dumb';
  return { signs: stdout.isTTY === true && !isPlain, columns: stdout.isTTY ? stdout.columns : undefined };
}
