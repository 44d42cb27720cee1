import type { z } from 'zod';
import type { FILE } from './schema.ts';

type Frozen<T> = T extends object ? { readonly [K in keyof T]: Frozen<T[K]> } : T;
type File = z.infer<typeof FILE>;
type Listen = File['webhook']['listen'];

/** All settings, checked and frozen. Durations are in milliseconds, sizes in bytes. */
export type Config = Frozen<
  Omit<File, 'webhook' | 'local' | 'link' | 'guard' | 'retention' | 'alarms'> & {
    guard: File['guard'] & { zeroItemsWindowMs: number };
    retention: File['retention'] & { quarantineMs: number };
    alarms: File['alarms'] & { timeoutMs: number };
    webhook: Omit<File['webhook'], 'listen'> & Listen;
    /** `host` and `port` are those of the first address, which is used in links to the page. */
    local: Listen & { others: Listen[]; socket: string };
    /** `hub` is the first address, which identifies the company; '' if this tillsync is no branch. */
    link: Omit<File['link'], 'hub'> & { hub: string; otherHubs: string[] };
  }
>;

export type BranchConfig = Config['branches'][number];
