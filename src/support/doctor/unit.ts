/** A unit as `systemctl show` reports it. */
export interface ServiceUnit {
  name: string;
  /** `active`, `inactive`, `failed`, `activating` and so on. */
  activeState: string;
  /** `enabled`, `disabled` and so on; empty if systemd does not say. */
  unitFileState: string;
  mainPid: number | null;
  restarts: number;
}

export const PROPERTIES = ['LoadState', 'ActiveState', 'UnitFileState', 'MainPID', 'NRestarts'];

/** Reads lines such as `ActiveState=active`. Returns null if systemd has not loaded the unit. */
export function parseUnit(name: string, text: string): ServiceUnit | null {
  const value = (property: string) => new RegExp(`^${property}=(.*)$`, 'm').exec(text)?.[1] ?? '';
  if (value('LoadState') !== 'loaded') return null;
  return {
    name,
    activeState: value('ActiveState'),
    unitFileState: value('UnitFileState'),
    mainPid: Number(value('MainPID')) || null,
    restarts: Number(value('NRestarts')) || 0,
  };
}
