import { hostname } from 'node:os';
import type { Config } from '../config/config-type.ts';

/** What the shop is called to people: `alarms.name`, or the name of the machine. */
export function shopName({ alarms }: { alarms: Pick<Config['alarms'], 'name'> }): string {
  return alarms.name === '' ? hostname() : alarms.name;
}
