// PostStock.exe URL EXTERNAL_ID=QTY@BRANCH …: counts by HTTP, with an answer for each.
// TILL_KEY: the key, which the group of storage.group reads in /var/lib/tillsync/api-key.
// mcs -r:System.Runtime.Serialization PostStock.cs
using System;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Net;
using System.Runtime.Serialization;
using System.Runtime.Serialization.Json;

[DataContract] class Item {
    [DataMember] public string externalId;
    [DataMember] public decimal qty;
    [DataMember(EmitDefaultValue = false)] public string subsidiaryExternalId;
}
[DataContract] class Result {
    [DataMember] public int index;
    [DataMember] public string state;
    [DataMember] public string message;
}
[DataContract] class Error {
    [DataMember] public string message;
}
[DataContract] class Answer {
    [DataMember] public Result[] results;
    [DataMember] public int rejected;
    [DataMember] public Error error;
}

static class PostStock {
    static int Main(string[] args) {
        Item[] items = args.Skip(1).Select(word => word.Split('=', '@')).Select(part => new Item {
            externalId = part[0],
            qty = decimal.Parse(part[1], CultureInfo.InvariantCulture),
            subsidiaryExternalId = part[2],
        }).ToArray();
        Answer answer = Post(args[0] + "/v1/stock", items);
        if (answer == null || answer.results == null) { // Send it again: counts are absolute, twice does no harm.
            Console.Error.WriteLine("Nothing was taken: "
                + (answer == null ? "tillsync does not answer." : answer.error.message));
            return 1;
        }
        foreach (Result result in answer.results)
            Console.WriteLine(items[result.index].externalId + " " + result.state + " " + result.message);
        return answer.rejected > 0 ? 3 : 0;
    }

    static Answer Post(string url, Item[] items) {
        var request = (HttpWebRequest)WebRequest.Create(url);
        request.Method = "POST";
        request.ContentType = "application/json";
        request.Headers["X-Api-Key"] = Environment.GetEnvironmentVariable("TILL_KEY");
        request.Timeout = 30000;
        WebResponse response;
        try {
            using (Stream body = request.GetRequestStream())
                new DataContractJsonSerializer(typeof(Item[])).WriteObject(body, items);
            response = request.GetResponse();
        } catch (WebException error) {                   // The body of a 4xx says what is wrong.
            if (error.Response == null) return null;
            response = error.Response;
        }
        using (response)
        using (Stream body = response.GetResponseStream())
            return (Answer)new DataContractJsonSerializer(typeof(Answer)).ReadObject(body);
    }
}
