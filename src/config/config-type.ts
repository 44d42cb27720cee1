import type { z } from 'zod';
import type { FILE } from './schema.ts';

type Frozen<T> = T extends object ? { readonly [K in keyof T]: Frozen<T[K]> } : T;
type File = z.infer<typeof FILE>;
type Listen = File['webhook']['listen'];

/** Everything an operator may set, checked and frozen. Durations in milliseconds, sizes in bytes. */
export type Config = Frozen<
  Omit<File, 'webhook' | 'local' | 'link'> & {
    webhook: Omit<File['webhook'], 'listen'> & Listen;
    /** `host` and `port` are of the first address, the one that links lead to. */
    local: Listen & { others: Listen[]; socket: string };
    /** `hub`: the first address, by which the company is known; '' for none. */
    link: Omit<File['link'], 'hub'> & { hub: string; otherHubs: string[] };
  }
>;

export type BranchConfig = Config['branches'][number];
