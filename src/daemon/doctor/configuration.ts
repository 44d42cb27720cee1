import { type Config, readConfig } from '../../config/config.ts';
import { type ConfigFault, describeFault } from '../../config/config-fault.ts';
import type { Environment } from '../../config/config-source.ts';
import { readSecrets, type Secrets } from '../../config/secrets.ts';
import { type Check, type Outcome, well } from './check.ts';

export interface DoctorSetup {
  file: string;
  /** undefined when it cannot be used. */
  config: Config | undefined;
  /** Those that this command was handed; the service gets its own. */
  secrets: Secrets;
  faults: readonly ConfigFault[];
}

const NO_SECRETS: Secrets = { webhookSecrets: [] };

/** As much of configuration and secrets as can be used, with all that is wrong with them. */
export function readDoctorSetup(options: { file?: string | undefined; env: Environment }): DoctorSetup {
  const config = readConfig(options);
  const secrets = readSecrets(options.env);
  return {
    file: config.file,
    config: 'config' in config ? config.config : undefined,
    secrets: 'secrets' in secrets ? secrets.secrets : NO_SECRETS,
    faults: [config, secrets].flatMap((result) => ('faults' in result ? result.faults : [])),
  };
}

export function configCheck({ file, faults }: DoctorSetup): Check {
  return { id: 'config', run: () => judge(file, faults) };
}

function judge(file: string, faults: readonly ConfigFault[]): Outcome {
  if (faults.length === 0) return well(`${file} is in order.`, { file, faults });
  const count = faults.length === 1 ? 'One fault' : `${faults.length} faults`;
  return {
    level: 'fail',
    message: `${count}: ${faults.map(describeFault).join('; ')}`,
    remedy: 'Correct the file or the environment, then try it with: tillsync config check',
    facts: { file, faults },
  };
}
