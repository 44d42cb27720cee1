import type { BranchConfig } from '../../config/config-type.ts';
import { TillsyncError } from '../../domain/errors.ts';
import type { GlobalOptions, JsonOption } from '../new-command.ts';

/** What the command line answers; the rest is asked, or stays as the file has it. */
export interface InitOptions extends GlobalOptions, JsonOption {
  baseUrl?: string;
  branch?: BranchConfig[];
  callbackUrl?: string;
  webhookListen?: string;
  localListen?: string;
  timezone?: string;
  directory?: string;
  group?: string;
  tokenStdin?: boolean;
  yes?: boolean;
  offline?: boolean;
  /** `--no-start`. */
  start: boolean;
}

/** Collects `--branch SUBSIDIARY[,EXTERNAL]`; `,EXTERNAL` names a branch by your own id alone. */
export function branchOption(text: string, before: BranchConfig[] = []): BranchConfig[] {
  const [subsidiaryId = '', externalId = '', ...more] = text.split(',').map((id) => id.trim());
  if (more.length > 0 || (subsidiaryId === '' && externalId === '')) {
    throw new TillsyncError(
      'usage',
      `--branch: found "${text}"; allowed: SUBSIDIARY, SUBSIDIARY,EXTERNAL or ,EXTERNAL.`,
    );
  }
  const branch = { ...(subsidiaryId !== '' && { subsidiaryId }), ...(externalId !== '' && { externalId }) };
  return [...before, branch];
}
