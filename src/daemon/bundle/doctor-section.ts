import type { Environment } from '../../config/config-source.ts';
import type { Clock, Random } from '../../domain/time/clock.ts';
import type { CheckResult } from '../doctor/check.ts';
import type { DoctorSetup } from '../doctor/configuration.ts';
import { examine } from '../doctor/doctor.ts';
import type { Section } from './section.ts';

export interface DoctorSectionOptions {
  setup: DoctorSetup;
  env: Environment;
  clock: Clock;
  random: Random;
  signal: AbortSignal;
}

/** Every check that can be made on this machine alone; nothing is asked of the platform. */
export function doctorSection(options: DoctorSectionOptions): Section {
  return {
    name: 'doctor.json',
    what: 'every check of tillsync doctor that needs nobody else, with its remedy',
    mayNamePeople: true,
    make: async () => {
      const silent = { onCheck() {}, onWait() {} };
      const checks: CheckResult[] = [];
      const examination = examine({ ...options, ...silent, offline: true, only: [] });
      for await (const check of examination) checks.push(check);
      return { document: { checks } };
    },
  };
}
