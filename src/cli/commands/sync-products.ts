import type { Command } from 'commander';
import type { SweepReport } from '../../daemon/sweep-now.ts';
import { counted } from '../../domain/counted.ts';
import { TillsyncError } from '../../domain/errors.ts';
import { typedWords } from '../../domain/installation.ts';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { type GlobalOptions, type JsonOption, newResultCommand } from '../new-command.ts';
import { type NoWaitOption, notNow, patienceOf, withNoWait } from '../options/no-wait-option.ts';
import { writeJson } from '../output.ts';
import { printable } from '../texts/printable.ts';
import { withParts } from '../with-parts.ts';

interface SyncProductsOptions extends GlobalOptions, JsonOption, NoWaitOption {
  branch?: string;
}

/** `sync products`: reads the whole catalogue now, one process at a time. */
export function syncProductsCommand(cli: Cli): Command {
  return withNoWait(
    newResultCommand('products', 'Read the catalogue now and mirror it', [
      'sync products',
      'sync products --branch B1 --json',
    ]),
  )
    .option('--branch <id>', 'only this branch, by its subsidiary_id or external_id; else every one')
    .action((_options, command: Command) => sync(cli, command.optsWithGlobals()));
}

async function sync(cli: Cli, options: SyncProductsOptions): Promise<void> {
  const { branchName, namedBranch, sweepNow } = await import('../../daemon/sweep-now.ts');
  await withParts(cli, options, async ({ parts, progress, call }) => {
    if (parts.branches.length === 0) {
      throw new TillsyncError(
        'config-invalid',
        'No branches are configured, so there is no catalogue to read.',
        {
          hint: 'Name each branch in a [[branches]] section; the API cannot list them.',
        },
      );
    }
    const branch = options.branch === undefined ? undefined : namedBranch(parts.branches, options.branch);
    let of = '';
    const reports = await sweepNow(parts, {
      ...patienceOf(call, options),
      branch,
      onBranch: (each) => {
        of = branchName(each);
        progress.step(`asking the platform for the products of ${of}`);
      },
      onBusy: () => {
        if (!options.wait) throw notNow('another process is reading the catalogue');
        progress.step('another process is reading the catalogue; waiting until it has ended');
      },
      onProgress: (done, total) => progress.count(`products of ${of}`, done, total ?? undefined),
    });
    progress.end();
    if (reports.some((report) => report.unreadable > 0)) cli.endWith(EXIT.partial);
    if (options.json) writeJson(cli, { branches: reports });
    else for (const report of reports) cli.stdout.write(reportText(branchName(report.branch), report));
  });
}

function reportText(name: string, report: SweepReport): string {
  const { products, pages, written, vanished, unreadable } = report;
  const lines = [
    `${name}: ${counted(products, 'product')} on ${counted(pages, 'page')}, ${written} new or changed.`,
  ];
  if (vanished > 0) lines.push(`${vanished} no longer listed.`);
  if (unreadable > 0)
    lines.push(`${unreadable} could not be read and are kept: ${typedWords().tillsync} quarantine list`);
  return `${lines.map(printable).join('\n')}\n`;
}
