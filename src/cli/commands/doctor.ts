import type { Command } from 'commander';
import type { CheckResult } from '../../daemon/doctor/check.ts';
import { TillsyncError } from '../../domain/errors.ts';
import { isoUtc } from '../../domain/time/clock.ts';
import type { Cli } from '../cli.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { writeJson } from '../output.ts';
import { Progress } from '../progress.ts';
import { checkText, type DoctorStyle, doctorExit, summaryText } from '../texts/doctor-text.ts';

interface DoctorCommandOptions extends GlobalOptions, JsonOption {
  offline?: boolean;
  only?: string[];
}

/** `doctor`: every link checked, with a verdict and a remedy each; with or without a running daemon. */
export function doctorCommand(cli: Cli): Command {
  return newResultCommand('doctor', 'Check every link, and say what is wrong and what to do about it', [
    'doctor',
    'doctor --only webhook --only platform.clock',
    'doctor --offline --json',
  ])
    .option('--offline', 'ask nothing of the platform, look at this machine alone')
    .option('--only <check...>', 'only these checks, such as storage or webhook.public')
    .addHelpText(
      'after',
      '\nNothing is written on the platform, and its limits are kept together with the running service.\n' +
        'Exit codes: 0 all well, 1 something is wrong, 2 the configuration cannot be used,\n' +
        '3 something to look at, or checks that this user may not make, 4 new tokens are needed.',
    )
    .action((_options, command: Command) => doctor(cli, command.optsWithGlobals()));
}

async function doctor(cli: Cli, options: DoctorCommandOptions): Promise<void> {
  const { CHECK_IDS, CHECK_TITLES } = await import('../../daemon/doctor/check.ts');
  const { checksNamed, examine } = await import('../../daemon/doctor/doctor.ts');
  const { readDoctorSetup } = await import('../../daemon/doctor/configuration.ts');
  const { becomeStorageUser } = await import('../../daemon/storage/storage-user.ts');
  const { clock, random, env, signal, stderr } = cli;
  const only = options.only ?? [];
  const unknown = only.find((word) => checksNamed(word).length === 0);
  if (unknown !== undefined) {
    const hint = `Those that there are: ${CHECK_IDS.join(', ')}; or the beginning of several, such as storage.`;
    throw new TillsyncError('usage', `There is no check "${unknown}".`, { hint });
  }
  const progress = new Progress({ stream: stderr, clock });
  const shown = only.length === 0 ? CHECK_IDS : only.flatMap(checksNamed);
  const titleWidth = Math.max(...shown.map((id) => CHECK_TITLES[id].length));
  const style = styleOf(cli);
  const results: CheckResult[] = [];
  const advised = new Set<string>();
  try {
    const setup = readDoctorSetup({ file: options.config, env });
    if (setup.config) {
      const { directory } = setup.config.storage;
      becomeStorageUser({ directory, configFile: setup.file, writes: false });
    }
    const examination = examine({
      ...{ setup, env, clock, random, signal, only },
      offline: options.offline === true,
      onCheck: (id) => stderr.isTTY && progress.step(`checking: ${CHECK_TITLES[id]}`),
      onWait: (wait) => progress.wait(wait),
    });
    for await (const result of examination) {
      results.push(result);
      progress.end();
      if (!options.json) cli.stdout.write(checkText(withoutRepeat(result, advised), titleWidth, style));
    }
  } finally {
    progress.end();
  }
  cli.endWith(doctorExit(results));
  const summary = summaryText(results);
  if (options.json) writeJson(cli, documentOf(results, summary, isoUtc(clock.nowMs())));
  else cli.stdout.write(`\n${summary}\n`);
}

/** What was not checked for the same reason as another check needs no advice of its own. */
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
    checks: results.map(({ id, title, level, message, remedy, facts }) => ({
      id,
      title,
      level,
      message,
      remedy,
      facts,
    })),
  };
}

function styleOf({ stdout, env }: Cli): DoctorStyle {
  const isPlain = (env.NO_COLOR ?? '') !== '' || env.TERM === 'dumb';
  return { signs: stdout.isTTY === true && !isPlain, columns: stdout.isTTY ? stdout.columns : undefined };
}
