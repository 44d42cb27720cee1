import type { Config } from '../../config/config-type.ts';
import type { Secrets } from '../../config/secrets.ts';
import type { AlarmReceiver } from './alarm-receiver.ts';
import { commandReceiver } from './command-receiver.ts';
import { urlReceiver } from './url-receiver.ts';

export interface ReceiverSettings {
  config: Pick<Config, 'alarms'>;
  secrets: Pick<Secrets, 'alarmUrl' | 'alarmToken'>;
  /** Of this process; the command gets little of it, and nothing secret. */
  env: NodeJS.ProcessEnv;
}

/** The receivers that are configured; none: alarms are on the status page and in the log only. */
export function alarmReceivers({ config, secrets, env }: ReceiverSettings): AlarmReceiver[] {
  const { command, timeoutMs } = config.alarms;
  const url = secrets.alarmUrl ?? config.alarms.url;
  const receivers: AlarmReceiver[] = [];
  if (command.length > 0) receivers.push(commandReceiver({ command, timeoutMs, env }));
  if (url !== '') receivers.push(urlReceiver({ url, token: secrets.alarmToken, timeoutMs }));
  return receivers;
}
