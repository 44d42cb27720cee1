import { resolve } from 'node:path';
import { type Config, readConfig } from '../../config/config.ts';
import { type ConfigFault, describeFault } from '../../config/config-fault.ts';
import type { Environment } from '../../config/config-source.ts';
import { serviceOf } from '../../config/credstore.ts';
import { isSetUp } from '../../config/sample-config.ts';
import { readSecrets, type Secrets } from '../../config/secrets.ts';
import { configWarnings } from '../../config/setup.ts';
import { FINDING_SENTENCES } from '../../domain/health/finding.ts';
import { type ServiceView, viewOfService } from '../service/service-view.ts';
import { type Check, failed, hidden, type Outcome, warned, well } from './check.ts';

export interface DoctorSetup {
  file: string;
  /** undefined when it cannot be used. */
  config: Config | undefined;
  /** Those that this command was handed, else those that the service would be. */
  secrets: Secrets;
  /** Files with secrets of the service that this user may not read. */
  unseen: readonly string[];
  /** undefined: no service reads the file. */
  view: ServiceView | undefined;
  faults: readonly ConfigFault[];
}

const NO_SECRETS: Secrets = { webhookSecrets: [] };

/** As much of configuration and secrets as can be used, with all that is wrong with them. */
export function readDoctorSetup(options: { file?: string | undefined; env: Environment }): DoctorSetup {
  const config = readConfig(options);
  const secrets = readSecrets(options.env, { service: serviceOf(resolve(config.file)) });
  const view = viewOfService(config.file);
  return {
    file: config.file,
    config: 'config' in config ? config.config : undefined,
    secrets: 'secrets' in secrets ? secrets.secrets : NO_SECRETS,
    faults: [
      ...[config, secrets].flatMap((result) => ('faults' in result ? result.faults : [])),
      ...(view?.faults ?? []),
    ],
    view,
    unseen: secrets.unseen,
  };
}

export function configCheck(setup: DoctorSetup): Check {
  return { id: 'config', run: () => judge(setup) };
}

function judge({ file, faults, config, view, unseen }: DoctorSetup): Outcome {
  if (config && !isSetUp(config)) {
    const { message, remedy } = FINDING_SENTENCES['setup.missing'];
    return warned(message, remedy, { file, code: 'setup.missing' });
  }
  if (faults.length === 0) {
    const warnings = config ? configWarnings(config) : [];
    if (warnings.length === 0 && (view?.canRead === null || unseen.length > 0)) {
      const user = view?.user ?? 'the service';
      return hidden(`${file} is in order; you do not have permission to try it as ${user}.`, {
        file,
        faults,
      });
    }
    if (warnings.length === 0) return well(`${file} is in order.`, { file, faults });
    return warned(warnings.join(' '), `Correct ${file}.`, { file, faults, warnings });
  }
  const count = faults.length === 1 ? 'One fault' : `${faults.length} faults`;
  return failed(
    `${count}: ${faults.map(describeFault).join('; ')}`,
    'Correct the file or the environment, then try it with: {tillsync} config check',
    { file, faults },
  );
}
