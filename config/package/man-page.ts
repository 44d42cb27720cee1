import type { CommandFacts } from './command-tree.ts';
import { everyCommand } from './command-tree.ts';
import type { PackageFacts } from './read-package.ts';

export interface ManPageOptions {
  program: CommandFacts;
  facts: PackageFacts;
  /** Date of the page. */
  date: Date;
}

const ENDING = `
.SH FILES
.TP
.I /etc/tillsync/config.toml
Configuration of the company that tillsync.service serves.
.TP
.I /etc/tillsync/NAME.toml
Configuration of a further company, served by tillsync@NAME.service. Give it a storage.directory of
/var/lib/tillsync@NAME and addresses of its own.
.TP
.I /etc/credstore/tillsync.refresh\\-token
The refresh token to begin with; likewise access\\-token, webhook\\-secret, local\\-api\\-key, alarm\\-url and
alarm\\-token. For a further company the names begin with tillsync@NAME. Readable by root alone; the service gets
them as credentials.
.TP
.I /var/lib/tillsync
The mirror that the POS reads, its inbox, and the state. Whoever may read is in the group tillsync.
.SH SERVICE
tillsync.socket keeps the address of callbacks open while tillsync.service restarts, so that callbacks wait and are
answered. It listens where webhook.listen says; after a change there:
.PP
.EX
systemctl daemon\\-reload
systemctl stop tillsync.service
systemctl restart tillsync.socket
systemctl start tillsync.service
.EE
.PP
To stop taking callbacks, stop both units. The service may write in storage.directory; after a change there, too, run
systemctl daemon\\-reload. It cannot write below /home, /root and /tmp. A storage.group needs a drop\\-in with
SupplementaryGroups= (systemctl edit tillsync.service).
.SH EXIT STATUS
0 done, 1 failed, 2 wrong usage or configuration, 3 done in part, 4 the platform asks for new tokens, 130 stopped by Ctrl-C.
`;

/** Returns the man page tillsync(1) in roff, made from the descriptions of the commands. */
export function manPage({ program, facts, date }: ManPageOptions): string {
  const day = date.toISOString().slice(0, 10);
  const leaves = everyCommand(program).filter(({ words, runs }) => words.length > 0 && runs);
  return [
    `.TH TILLSYNC 1 "${day}" "tillsync ${facts.version}" "User Commands"`,
    '.SH NAME',
    `tillsync \\- ${text(program.description.replace(/^K/, 'k'))}`,
    '.SH SYNOPSIS',
    '.B tillsync',
    '.RI [ options ] " command " [ options ]',
    '.SH OPTIONS',
    ...program.options.flatMap(option),
    '.SH COMMANDS',
    ...leaves.flatMap((leaf) => [
      `.SS "tillsync ${text(leaf.words.join(' '))} ${text(leaf.usage)}"`,
      `${text(leaf.description)}.`,
      ...leaf.options.flatMap(option),
    ]),
  ]
    .join('\n')
    .concat(ENDING);
}

function option({ flags, description }: CommandFacts['options'][number]): string[] {
  return ['.TP', `.B ${text(flags)}`, text(description)];
}

function text(plain: string): string {
  return plain
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(/^([.'])/gm, '\\&$1')
    .replaceAll('"', '\\(dq');
}
